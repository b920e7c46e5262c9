//! Draws the page of kept results: `cargo run -p bench --example page -- A.json B.json >page.html`.
fn main() {
    let paths: Vec<_> = std::env::args_os().skip(1).collect();
    if paths[0] == "sweep" {
        let result = serde_json::from_slice(&std::fs::read(&paths[1]).unwrap()).unwrap();
        return print!("{}", bench::report::sweep::page(&result));
    }
    let read =
        |path: std::ffi::OsString| bench::report::files::read(path.as_ref()).unwrap_or_else(|error| panic!("{error}"));
    let results: Vec<_> = paths.into_iter().map(read).collect();
    print!("{}", bench::report::html::page(&results));
    bench::report::table::write(&mut std::io::stderr(), &results).expect("standard error takes it");
}
