# A redis server on loopback, a short benchmark, a background save (fork), and answers that must be exact.
# Arguments: port, requests. Runs in an empty directory.
set -euo pipefail
port=$1 requests=$2
redis-server --port "$port" --bind 127.0.0.1 --save '' --appendonly no --dir . --daemonize no > server.log 2>&1 &
server=$!
ask() { redis-cli -p "$port" "$@"; }
for _ in $(seq 1 200); do ask ping > ping.log 2>&1 && break; sleep 0.05; done
ask ping
redis-benchmark -p "$port" -n "$requests" -c 20 -d 100 -r 10000 -t set,get,incr,lpush,lrange_100,mset -q > bench.log
ask flushall
ask eval 'for i = 1, 20000 do redis.call("set", "k" .. i, string.rep("v", i % 500)) end return redis.call("dbsize")' 0
ask bgsave
for _ in $(seq 1 400); do ask info persistence | grep -q 'rdb_bgsave_in_progress:0' && break; sleep 0.05; done
ask info persistence | grep -o 'rdb_last_bgsave_status:ok'
ask eval 'local n = 0 for i = 1, 20000 do n = n + #redis.call("get", "k" .. i) end return n' 0
ask shutdown nosave
wait "$server"
