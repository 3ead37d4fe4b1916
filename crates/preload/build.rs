//! Link arguments of libpagelab.so.

fn main() {
    // initfirst: our constructor runs before every other one, so that no memory is handed out before the detours are
    // in place. now: no symbol is looked up later, inside somebody else's malloc. nodelete: detours point into us.
    for argument in ["-z,initfirst", "-z,now", "-z,nodelete", "--as-needed", "--gc-sections"] {
        println!("cargo:rustc-cdylib-link-arg=-Wl,{argument}");
    }
    println!("cargo:rerun-if-changed=build.rs");
}
