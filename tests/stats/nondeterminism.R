# Reference answers for test_nondeterminism_against_r.py: reads cases (id <tab> kind <tab> x <tab> y, values separated by
# commas), writes id <tab> key <tab> values with 17 digits. Nested data are x = measurements, y = sizes of executions.
suppressPackageStartupMessages({
  library(boot)
  library(lme4)
  library(coin)
})
options(warn = -1, digits = 17)

emit <- function(id, key, values) {
  cat(id, "\t", key, "\t", paste(sprintf("%.17g", values), collapse = ","), "\n", sep = "")
}
numbers <- function(text) if (nchar(text) == 0) numeric(0) else as.numeric(strsplit(text, ",", fixed = TRUE)[[1]])
rows <- function(x, y) split(x, rep(seq_along(y), y))
cv <- function(x) sd(x) / mean(x)

# Mean of executions with Student's t; CVs; the variance of the means.
hierarchical <- function(id, x, y) {
  data <- rows(x, y)
  means <- sapply(data, mean)
  emit(id, "interval", t.test(means)$conf.int)
  emit(id, "within", mean(sapply(data, cv)))
  emit(id, "pooled", cv(x))
  emit(id, "between", var(means))
}

# Components by REML: for balanced data with positive components the same as by analysis of variance.
components <- function(id, x, y) {
  execution <- factor(rep(seq_along(y), y))
  fit <- lmer(x ~ 1 + (1 | execution), REML = TRUE, control = lmerControl(optCtrl = list(xtol_abs = 1e-12, ftol_abs = 1e-12)))
  emit(id, "components", c(sigma(fit)^2, as.numeric(VarCorr(fit)$execution)))
  emit(id, "mean", fixef(fit))
  emit(id, "error", sqrt(as.numeric(vcov(fit))))
  table <- anova(lm(x ~ execution))
  emit(id, "anova", c(table["Residuals", "Mean Sq"],
                      (table["execution", "Mean Sq"] - table["Residuals", "Mean Sq"]) / y[1]))
}

# y = compilations, executions, measurements: x is in the order of three nested loops.
three_levels <- function(id, x, y) {
  compilation <- factor(rep(seq_len(y[1]), each = y[2] * y[3]))
  execution <- factor(rep(seq_len(y[1] * y[2]), each = y[3]))
  fit <- lmer(x ~ 1 + (1 | compilation) + (1 | execution), control = lmerControl(optCtrl = list(xtol_abs = 1e-12, ftol_abs = 1e-12)))
  parts <- VarCorr(fit)
  emit(id, "components", c(sigma(fit)^2, as.numeric(parts$execution), as.numeric(parts$compilation)))
}

# Shift and standard error of the logs of the CV of everything and of the impact factor. y: measurements of each
# execution. boot's empinf gives both the infinitesimal and the ordinary jackknife of executions.
errors <- function(id, x, y) {
  n <- length(y)
  total <- length(x)
  rows <- split(x, rep(seq_len(n), y))
  variance <- function(v) mean((v - mean(v))^2)
  pooled <- function(kept) log(sd(unlist(rows[kept])) / mean(unlist(rows[kept])))
  impact <- function(kept) {
    means <- sapply(rows[kept], mean)
    log(var(means) + mean(sapply(rows[kept], variance))) / 2 + log(mean(1 / sapply(rows[kept], sd)))
  }
  jackknife <- function(statistic) {
    without <- sapply(seq_len(n), function(i) statistic(setdiff(seq_len(n), i)))
    (n - 1) / n * sum((without - mean(without))^2)
  }
  weighted <- function(d, w) {
    all <- rep(w * n / y[1], y) * y[1] / n
    grand <- sum(all * x) / sum(all)
    log(sum(all * (x - grand)^2) / sum(all)) / 2 - log(grand)
  }
  influence <- empinf(data = seq_len(n), statistic = weighted, type = "inf", stype = "w")
  normal <- function(share) (share^2 / (n - 1) + (1 - share)^2 / (total - n)) / 2
  within <- sum(y * sapply(rows, variance)) / (total - n)
  means <- sapply(rows, mean)
  between <- max(0, var(means) - within * n / total)
  share <- max(between / (between + within), n / total)
  found <- min(jackknife(pooled), 4 * sum(influence^2) / (n * (n - 1)))
  emit(id, "pooled", c(-log(1 - share * (total / n - 1) / (total - 1)) / 2 + normal(share) / 2,
                       sqrt(((n - 1) * found + 4 * normal(share)) / (n + 3))))
  share <- var(means) / (var(means) + mean(sapply(rows, variance)))
  emit(id, "impact", c(share^2 / (4 * (n - 1)),
                       sqrt(max(jackknife(impact), normal(share) + 0.5 / (total - n)))))
}

# ALLOC's description of the impact factor, as directly as it can be written.
impact <- function(id, x, y) {
  data <- rows(x, y)
  g <- min(length(data), min(y))
  set.seed(2)
  draw <- function(data) {
    one <- data[[sample.int(length(data), 1)]]
    within <- sd(one[sample.int(length(one), g)])
    between <- sd(sapply(data[sample.int(length(data), g)], function(row) row[sample.int(length(row), 1)]))
    between / within
  }
  ratios <- replicate(5000, draw(data))
  emit(id, "impact", c(mean(ratios), sd(ratios) / sqrt(length(ratios)), exp(mean(log(ratios)))))
  nulls <- replicate(5000, draw(rows(sample(x), y)))
  emit(id, "null", c(mean(nulls), sd(nulls) / sqrt(length(nulls)), exp(mean(log(nulls)))))
}

correlation <- function(id, x, y) {
  found <- cor.test(x, y)
  emit(id, "pearson", c(found$estimate, found$conf.int))
  emit(id, "spearman", cor(x, y, method = "spearman"))
  set.seed(3)
  done <- boot(cbind(x, y), function(d, i) cor(d[i, 1], d[i, 2]), R = 9999)
  emit(id, "boot", boot.ci(done, type = "perc")$percent[4:5])
}

# Kendall against the order, with ties.
trend <- function(id, x, y) {
  found <- cor.test(seq_along(x), x, method = "kendall", exact = FALSE, continuity = TRUE)
  emit(id, "kendall", c(found$estimate, found$p.value))
}

# Lag-1 correlation, and its standardised value over random orders.
serial <- function(id, x, y) {
  emit(id, "acf", acf(x, lag.max = 1, plot = FALSE)$acf[2])
  centred <- x - mean(x)
  set.seed(4)
  permuted <- replicate(5000, { p <- sample(centred); sum(head(p, -1) * tail(p, -1)) })
  observed <- sum(head(centred, -1) * tail(centred, -1))
  emit(id, "z", (observed - mean(permuted)) / sd(permuted))
}

# Warm-up: at a known place, the sum of within-execution ranks is coin's stratified Wilcoxon statistic with mid-ranks.
change <- function(id, x, y) {
  m <- y[1]
  after <- y[2]
  data <- data.frame(value = ave(x, rep(seq_len(length(x) / m), each = m), FUN = rank),
                     part = factor(rep(seq_len(m) <= after, length(x) / m), levels = c(TRUE, FALSE)),
                     execution = factor(rep(seq_len(length(x) / m), each = m)))
  found <- independence_test(value ~ part | execution, data = data, teststat = "scalar")
  emit(id, "z", as.numeric(statistic(found, type = "standardized")))
}

for (line in readLines(file("stdin"))) {
  part <- strsplit(paste0(line, "\t."), "\t", fixed = TRUE)[[1]]
  x <- numbers(part[3])
  y <- numbers(part[4])
  if (part[2] == "ecdf") emit(part[1], "ecdf", ecdf(x)(y)) else
    get(part[2])(part[1], x, y)
}
