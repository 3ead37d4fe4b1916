# For scripts that boot a kernel under QEMU, without KVM: sourced, not run. `emulated_*` functions; $0 names the caller.

# Programs that must be there.
emulated_need() { # program ...
  local program
  for program in "$@"; do
    command -v "$program" >/dev/null || { echo "$0: $program is missing; see the top of this file" >&2; exit 3; }
  done
}

# A package list of its own: `apt` knows this machine's sources, and nothing of this system changes.
# Sets `options`, for apt-get and apt-cache.
emulated_apt() { # directory, suite, further options ...
  local directory=$1 suite=$2 repository keyring=/usr/share/keyrings/debian-archive-keyring.gpg
  shift 2
  mkdir -p "$directory/state/lists/partial" "$directory/cache/archives/partial"
  repository=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' 'Codename: bookworm' | sort -u | head -n 1)
  echo "deb [signed-by=$keyring] $repository $suite main" >"$directory/sources.list"
  options=(-qq -o "Dir::State=$directory/state" -o "Dir::Cache=$directory/cache"
    -o "Dir::Etc::sourcelist=$directory/sources.list" -o Dir::Etc::sourceparts=/nonexistent
    -o Dir::State::status=/dev/null -o APT::Sandbox::User=root "$@")
  apt-get "${options[@]}" update
}

# Debian's cloud kernel of a suite, unpacked into `kernel-SUITE` of this directory, once.
emulated_kernel() { # suite
  [ -d "kernel-$1" ] && return
  emulated_apt "$PWD/apt-$1" "$1"
  local image
  image=$(apt-cache "${options[@]}" depends linux-image-cloud-amd64 | awk '/Depends: linux-image/ {print $2; exit}')
  (cd "apt-$1" && apt-get "${options[@]}" download "$image")
  mkdir -p "kernel-$1.part"
  dpkg -x "apt-$1"/"$image"_*.deb "kernel-$1.part"
  mv "kernel-$1.part" "kernel-$1"
}

# A root directory with busybox and nothing else.
emulated_root() { # directory, busybox, applet ...
  local root=$1 busybox=$2 applet
  shift 2
  rm -rf "$root"
  mkdir -p "$root"/{bin,lib,lib64,proc,sys,dev,tmp,etc,run,mnt,modules}
  cp "$busybox" "$root/bin/busybox"
  for applet in "$@"; do ln -sf busybox "$root/bin/$applet"; done
  printf 'root:x:0:0::/:/bin/sh\nuser:x:1000:1000::/:/bin/sh\n' >"$root/etc/passwd"
}

# What programs and libraries are linked with, at the same paths of a root directory.
emulated_libraries() { # root directory, program or library ...
  local root=$1 file
  shift
  for file in $(ldd "$@" | grep -o '/[^ :]*' | grep -v "^$root" | sort -u); do
    mkdir -p "$root/$(dirname "$file")"
    cp -L "$file" "$root/$file"
  done
}

emulated_initrd() { # root directory, init, archive
  cp "$2" "$1/init"
  chmod +x "$1/init"
  (cd "$1" && find . | cpio -o -H newc 2>/dev/null | gzip -1) >"$3"
}

# An x86-64 machine from its start to power-off; the console goes into a file, whose last line says it if a limit ended QEMU.
# The limit is processor time, so that a machine that is busy with others ends none; only for one that sleeps for ever there
# is a clock. For the same reason the kernel does not test its timer (no_timer_check): it waits as many cycles as
# are ten ticks or more, and panics if five ticks did not come meanwhile, which QEMU's other thread has to run for.
# Debian 12's QEMU loses the flags of interrupted cmpxchg16b instructions: without them the kernel does without.
emulated_clock=60 # seconds by the clock for each second of processor time that a machine may take
emulated_boot() { # seconds, log, kernel, archive, kernel's arguments, QEMU's arguments ...
  local seconds=$1 log=$2 kernel=$3 initrd=$4 arguments=$5
  local most=$((emulated_clock * seconds))
  shift 5
  (
    ulimit -S -t "$seconds"
    exec timeout "$most" qemu-system-x86_64 -accel tcg -cpu Nehalem,-cx16 -nographic -no-reboot "$@" \
      -kernel "$kernel" -initrd "$initrd" -append "console=ttyS0 quiet panic=-1 no_timer_check $arguments"
  ) </dev/null >"$log" 2>&1 ||
    case $? in
    124) printf '\nemulated_boot: QEMU was ended after %d s\n' "$most" >>"$log" ;;
    *) printf '\nemulated_boot: QEMU ended with code %d (152: after %d s of processor time)\n' $? "$seconds" >>"$log" ;;
    esac
}

# Two memory nodes, one processor each.
emulated_two_nodes() { # MiB a node; sets `nodes`
  nodes=(-m "$((2 * $1))" -smp 2 -object "memory-backend-ram,id=m0,size=$1M" -object "memory-backend-ram,id=m1,size=$1M"
    -numa node,nodeid=0,cpus=0,memdev=m0 -numa node,nodeid=1,cpus=1,memdev=m1)
}
