//! Draws the page of kept results: `cargo run -p bench --example page -- A.json B.json >page.html`.
fn main() {
    let paths: Vec<_> = std::env::args_os().skip(1).map(Into::into).collect();
    match bench::report::files::page(&paths) {
        Ok(page) => print!("{page}"),
        Err(error) => panic!("{error}"),
    }
}
