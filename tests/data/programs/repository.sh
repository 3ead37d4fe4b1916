# A repository from nothing to gc and clone, with fixed dates: every object name is deterministic.
set -euo pipefail
export GIT_AUTHOR_DATE='2001-02-03T04:05:06Z' GIT_COMMITTER_DATE='2001-02-03T04:05:06Z' HOME="$PWD"
export GIT_CONFIG_NOSYSTEM=1
git init -q -b main one
cd one
git config user.name Tester
git config user.email tester@example.com
git config gc.autoDetach false
for i in $(seq 1 25); do
    seq 1 $((i * 400)) > "file-$((i % 7))"
    head -c 200000 /dev/zero | tr '\0' "$((i % 10))" > large
    git add .
    git commit -q -m "commit $i"
done
git checkout -q -b side HEAD~5
echo side > side
git add side
git commit -q -m side
git checkout -q main
git merge -q --no-edit side
git gc -q --prune=now
git fsck --strict 2>&1 | grep -v '^Checking' || true
git rev-parse HEAD
cd ..
git clone -q --no-local one two
cd two
git log --format='%H %s' | md5sum
git blame file-3 | md5sum
git grep -c 99 | sort
