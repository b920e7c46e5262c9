//! What healthy applications do to a database in half a minute: the same for every database.

use crate::support::Random;

/// Connections, those made so far, and commands so far, at each look. Some connections are kept, at a steady load with
/// its chances; a job comes, works and is gone; an instance is replaced.
pub fn random_load(random: &mut Random, looks: u64) -> Vec<(u64, u64, u64)> {
    let kept = random.between(5.0, 60.0) as u64;
    let rate = random.between(20.0, 3_000.0);
    let job =
        (random.between(0.0, looks as f64) as u64, random.between(1.0, 6.0) as u64, random.between(0.0, 30.0) as u64);
    let deployed = random.between(0.0, looks as f64) as u64;
    let replaced = random.between(0.0, kept as f64 / 2.0) as u64;
    let (mut made, mut commands) = (kept, 10_000);
    let mut load = Vec::new();
    for n in 0..looks {
        commands += (rate * random.between(0.0, 1.0)) as u64;
        let mut here = kept;
        if (job.0..job.0 + job.1).contains(&n) {
            if n == job.0 {
                made += job.2;
            }
            commands += job.2 * random.between(8.0, 40.0) as u64;
            here += job.2;
        }
        if n == deployed {
            made += replaced;
            commands += replaced * 3;
        }
        load.push((here, made, commands));
    }
    load
}
