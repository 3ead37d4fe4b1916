# Reference answers for tests/stats: reads cases (id <tab> kind <tab> x <tab> y, values separated by commas), writes
# id <tab> key <tab> values with 17 digits, so that nothing is lost on the way.
suppressPackageStartupMessages({
  suppressWarnings(library(exactRankTests))
  library(coin)
})
options(warn = -1, digits = 17)

emit <- function(id, key, values) {
  cat(id, "\t", key, "\t", paste(sprintf("%.17g", values), collapse = ","), "\n", sep = "")
}
numbers <- function(text) if (nchar(text) == 0) numeric(0) else as.numeric(strsplit(text, ",", fixed = TRUE)[[1]])

two_samples <- function(id, x, y) {
  untied <- length(unique(c(x, y))) == length(x) + length(y)
  for (side in c("two.sided", "less", "greater")) {
    exact <- exactRankTests::wilcox.exact(x, y, alternative = side, exact = TRUE)
    emit(id, paste0("wilcox.exact.", side), exact$p.value)
    emit(id, "W", exact$statistic)
    doubled <- as.integer(round(2 * rank(c(x, y))))
    permuted <- exactRankTests::perm.test(doubled[seq_along(x)], doubled[-seq_along(x)], alternative = side,
                                          exact = TRUE)
    emit(id, paste0("perm.test.", side), permuted$p.value)
    normal <- stats::wilcox.test(x, y, alternative = side, exact = FALSE, correct = TRUE)
    emit(id, paste0("normal.", side), normal$p.value)
    if (length(unique(c(x, y))) == 1) next # coin divides by the standard deviation, 0 here
    group <- factor(c(rep("a", length(x)), rep("b", length(y))), levels = c("a", "b"))
    answer <- coin::wilcox_test(value ~ group, data = data.frame(value = c(x, y), group = group),
                                distribution = "exact", alternative = side)
    emit(id, paste0("coin.", side), as.numeric(coin::pvalue(answer)))
    if (untied) {
      emit(id, paste0("wilcox.test.", side), stats::wilcox.test(x, y, alternative = side, exact = TRUE)$p.value)
    }
  }
  if (untied && length(x) >= 4 && length(y) >= 4) {
    for (level in c(0.8, 0.95)) {
      own <- stats::wilcox.test(x, y, exact = TRUE, conf.int = TRUE, conf.level = level)
      other <- exactRankTests::wilcox.exact(x, y, exact = TRUE, conf.int = TRUE, conf.level = level)
      emit(id, paste0("wilcox.test.interval.", level), own$conf.int)
      emit(id, paste0("wilcox.test.estimate.", level), own$estimate)
      emit(id, paste0("wilcox.exact.interval.", level), other$conf.int)
      emit(id, paste0("wilcox.exact.estimate.", level), other$estimate)
    }
  }
}

one_sample <- function(id, x) {
  emit(id, "fivenum", stats::fivenum(x))
  emit(id, "boxplot.stats", grDevices::boxplot.stats(x, coef = 0)$stats)
  emit(id, "moments", c(mean(x), stats::sd(x)))
  # The order-statistic interval for the median, by its definition: k - 1 = largest count still in the tail.
  k <- stats::qbinom(0.025, length(x), 0.5)
  emit(id, "median.k", k)
  emit(id, "median.achieved", 1 - 2 * stats::pbinom(k - 1, length(x), 0.5))
}

# One execution of each condition in each block.
strata <- function(id, x, y) {
  data <- data.frame(value = c(x, y), block = factor(c(seq_along(x), seq_along(y))),
                     group = factor(rep(c("a", "b"), c(length(x), length(y)))))
  for (side in c("two.sided", "less", "greater")) {
    answer <- coin::wilcox_test(value ~ group | block, data = data, distribution = "exact", alternative = side)
    emit(id, paste0("coin.", side), as.numeric(coin::pvalue(answer)))
    emit(id, "linear", as.numeric(coin::statistic(answer, "linear")))
  }
}

for (line in readLines(file("stdin"))) {
  part <- strsplit(paste0(line, "\t."), "\t", fixed = TRUE)[[1]]
  x <- numbers(part[3])
  switch(part[2],
    two = two_samples(part[1], x, numbers(part[4])),
    one = one_sample(part[1], x),
    strata = strata(part[1], x, numbers(part[4])),
    holm = emit(part[1], "holm", stats::p.adjust(x, "holm")),
    null = emit(part[1], "pwilcox", stats::pwilcox(0:(x[1] * x[2]), x[1], x[2])))
}
