"""Makes input scripts for a database and for small interpreters."""

from __future__ import annotations

from . import Draw
from .text import vocabulary


def make_sql(seed: int, rows: int) -> bytes:
    """SQL of a small shop: tables and indices, rows in one transaction, then queries, updates and deletions."""
    draw = Draw(seed, "sql")
    words = vocabulary(draw, 500)
    lines = [
        "CREATE TABLE customer (id INTEGER PRIMARY KEY, name TEXT NOT NULL, town TEXT NOT NULL, credit INTEGER);",
        "CREATE TABLE sale (id INTEGER PRIMARY KEY, customer INTEGER REFERENCES customer, item TEXT, price INTEGER);",
        "BEGIN;",
    ]
    customers = max(1, rows // 10)
    towns = words[:40]
    for number in range(customers):
        name = f"{draw.one(words)} {draw.one(words)}"
        lines.append(f"INSERT INTO customer VALUES ({number}, '{name}', '{draw.one(towns)}', {draw.below(10_000)});")
    for number in range(rows):
        sale = f"{number}, {draw.below(customers)}, '{draw.one(words)}', {draw.below(100_000)}"
        lines.append(f"INSERT INTO sale VALUES ({sale});")
    lines += ["COMMIT;", "CREATE INDEX by_customer ON sale (customer);", "CREATE INDEX by_item ON sale (item, price);"]
    for _ in range(60):
        lines.append(_query(draw, words, towns))
    lines.append("DELETE FROM sale WHERE price % 7 = 3;")
    lines.append("SELECT count(*), sum(price) FROM sale;")
    return "\n".join(lines).encode("ascii") + b"\n"


def _query(draw: Draw, words: list[str], towns: list[str]) -> str:
    joined = "FROM sale JOIN customer ON customer.id = customer"
    queries = (
        f"SELECT count(*), sum(price) FROM sale WHERE item = '{draw.one(words)}';",
        f"SELECT town, sum(price) {joined} GROUP BY town ORDER BY 2 DESC LIMIT 5;",
        f"SELECT name, max(price) {joined} WHERE town = '{draw.one(towns)}';",
        f"UPDATE customer SET credit = credit + {draw.below(100)} WHERE town = '{draw.one(towns)}';",
        f"SELECT item, count(*) FROM sale WHERE price BETWEEN {draw.below(50_000)} AND 90000 GROUP BY item LIMIT 9;",
    )
    return draw.one(queries)


LUA = """\
-- Words counted, primes sieved, a list sorted: tables, strings and numbers.
local counts, longest = {}, ""
for line in io.lines(arg[1]) do
  for word in line:gmatch("%a+") do
    word = word:lower()
    counts[word] = (counts[word] or 0) + 1
    if #word > #longest then longest = word end
  end
end
local names = {}
for word in pairs(counts) do names[#names + 1] = word end
table.sort(names, function(a, b) return counts[a] > counts[b] or (counts[a] == counts[b] and a < b) end)
local sieve, primes = {}, 0
for number = 2, 200000 do
  if not sieve[number] then
    primes = primes + 1
    for multiple = number * number, 200000, number do sieve[multiple] = true end
  end
end
assert(primes == 17984)
print(#names, names[1], counts[names[1]], longest, primes)
"""

PERL = """\
# Words counted, primes sieved, a list sorted: hashes, patterns and numbers.
use strict;
use warnings;
my (%counts, $longest);
$longest = '';
open(my $file, '<', $ARGV[0]) or die "cannot open $ARGV[0]: $!";
while (my $line = <$file>) {
    while ($line =~ /([A-Za-z]+)/g) {
        my $word = lc $1;
        $counts{$word}++;
        $longest = $word if length $word > length $longest;
    }
}
my @names = sort { $counts{$b} <=> $counts{$a} || $a cmp $b } keys %counts;
my (@sieve, $primes);
for my $number (2 .. 200000) {
    next if $sieve[$number];
    $primes++;
    for (my $multiple = $number * $number; $multiple <= 200000; $multiple += $number) { $sieve[$multiple] = 1 }
}
die "wrong" if $primes != 17984;
print scalar(@names), " $names[0] $counts{$names[0]} $longest $primes\\n";
"""
