# Sourced by kernel/build and kernel/deb: Debian's source of Linux, and trees of it with the series. Sets cache and version;
# needs $here, the directory of this file.
cache=${PAGELAB_KERNEL_CACHE:-$here/../target/kernel}
version=${PAGELAB_KERNEL_VERSION:-6.12.117-1~deb12u1}
package=linux-source-6.12
mkdir -p "$cache/packages"
cache=$(cd "$cache" && pwd)

fail() { echo "kernel/$(basename "$0"): $*" >&2; exit 3; }

# Downloads a package of this version, unless it is there; prints its path.
kernel_package() { # name, architecture, size
  local deb=$cache/packages/$1_${version/:/%3a}_$2.deb
  if [ ! -f "$deb" ]; then
    echo "kernel/$(basename "$0"): downloading $1 $version ($3) ..." >&2
    # The lists may be older than the package.
    (cd "$cache/packages" && { apt-get -qq -o APT::Sandbox::User=root download "$1=$version" ||
      { [ "$(id -u)" = 0 ] && apt-get -qq update &&
        apt-get -qq -o APT::Sandbox::User=root download "$1=$version"; }; }) >&2 ||
      fail "cannot download $1 $version; run: apt-get update; apt-cache policy $1;" \
        "another 6.12 is asked for by PAGELAB_KERNEL_VERSION"
  fi
  echo "$deb"
}

# The version of the series: the time of its last change, so that a newer one replaces an older one, and what it consists
# of, so that no two are taken for one.
series_version() {
  local changed when=
  changed=$(git -C "$here" status --porcelain -- patches 2>/dev/null) || changed=unknown
  [ -n "$changed" ] ||
    when=$(TZ=UTC git -C "$here" log -1 --format=%cd --date=format-local:%Y%m%d%H%M -- patches 2>/dev/null) || when=
  echo "${when:-$(date -u +%Y%m%d%H%M)}.$(cat "$here"/patches/*.patch | sha256sum | cut -c1-8)"
}

# Makes tree/source: unpacked once, with exactly these patches. What a patch does not change keeps its time, so that make
# builds only what depends on the others.
kernel_tree() { # tree, patches ...
  local tree=$1 deb applied touched file each
  shift
  deb=$(kernel_package "$package" all "about 150 MB")
  mkdir -p "$tree/applied"
  if [ ! -f "$tree/unpacked" ]; then
    rm -rf "$tree/source" "$tree"/applied/*
    mkdir -p "$tree/source"
    dpkg-deb --fsys-tarfile "$deb" | tar -xO "./usr/src/$package.tar.xz" | xz -dc |
      tar -x -C "$tree/source" --strip-components 1
    touch "$tree/unpacked"
  fi
  pushd "$tree/source" >/dev/null
  # While the series is exchanged, the tree is no tree to start from.
  rm "$tree/unpacked"
  applied=$(find "$tree/applied" -name '*.patch' | sort -r)
  rm -rf "$tree/before"
  mkdir "$tree/before"
  touched=$(cat $applied "$@" </dev/null | sed -n 's,^+++ b/,,p' | sort -u)
  for file in $touched; do [ ! -f "$file" ] || cp -p --parents "$file" "$tree/before/"; done
  for each in $applied; do
    patch --batch --reverse --fuzz=0 -p1 <"$each" >"$tree/patch.log" 2>&1 || fail "$each cannot be taken back; remove $tree"
    rm "$each"
  done
  for each in "$@"; do
    patch --batch --forward --fuzz=0 -p1 <"$each" >"$tree/patch.log" 2>&1 ||
      { tail -n 20 "$tree/patch.log" >&2; fail "$(basename "$each") does not apply to $package $version without fuzz"; }
    cp "$each" "$tree/applied/"
  done
  for file in $touched; do
    [ ! -f "$file" ] || ! cmp -s "$file" "$tree/before/$file" || touch -r "$tree/before/$file" "$file"
  done
  touch "$tree/unpacked"
  popd >/dev/null
}
