//! The page at `/`: where to look.

/// Links to all there is.
pub const PAGE: &str = r#"<!doctype html>
<html lang="en">
<head><meta charset="utf-8"><title>Poolhouse</title></head>
<body>
<h1>Poolhouse</h1>
<ul>
<li><a href="/metrics">/metrics</a>: for Prometheus</li>
<li><a href="/api/pools">/api/pools</a>: pools and listeners, as JSON</li>
<li><a href="/api/clients">/api/clients</a>: who is connected (?limit=N)</li>
<li><a href="/api/servers">/api/servers</a>: connections to databases (?limit=N)</li>
<li><a href="/health">/health</a>: the process lives</li>
<li><a href="/ready">/ready</a>: new clients are welcome</li>
</ul>
<p>Orders (pause, resume, reconnect, drain, reload, kill) are given with <code>poolhouse ctl</code>.</p>
</body>
</html>
"#;
