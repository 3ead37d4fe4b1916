# Arrays, subshells, pipes, process substitution, here documents, traps, background jobs: a few hundred processes.
set -euo pipefail
declare -A count
for word in $(seq 1 2000 | awk '{ print $1 % 17 }'); do count[$word]=$(( ${count[$word]:-0} + 1 )); done
for key in $(printf '%s\n' "${!count[@]}" | sort -n); do echo "$key ${count[$key]}"; done
long=$(head -c 300000 /dev/zero | tr '\0' x)
echo "${#long} ${long:299990}"
diff <(seq 1 1000) <(seq 1 1000 | sed 's/^500$/five hundred/') || true
total=0
for i in $(seq 1 60); do (exit $((i % 3))) || total=$((total + $?)); done
echo "$total"
for i in 1 2 3 4 5 6; do { sort -R --random-source=/dev/zero <(seq 1 5000) | md5sum; } & done
wait
trap 'echo trapped' USR1
kill -USR1 $$
cat <<END | sort -r | head -3
$(seq 1 100)
END
seq 1 30000 | sort -n -r -S 1M --parallel=2 | tail -2
