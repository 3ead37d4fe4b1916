//! Link arguments of libpagelab.so.

fn main() {
    // soname: a program that was linked with the library under this name and is started with it preloaded (in a wheel
    // the file is called otherwise) must not get it twice. initfirst: our constructor runs before every other one, so
    // that no memory is handed out before the detours are in place. now: no symbol is looked up later, inside somebody
    // else's malloc. nodelete: detours point into us.
    for argument in
        ["-soname,libpagelab.so", "-z,initfirst", "-z,now", "-z,nodelete", "--as-needed", "--gc-sections"]
    {
        println!("cargo:rustc-cdylib-link-arg=-Wl,{argument}");
    }
    println!("cargo:rerun-if-changed=build.rs");
}
