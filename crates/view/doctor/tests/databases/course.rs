//! What healthy applications do to a database in half a minute, made up: for every database the same.

/// Numbers at random, the same for the same seed (xorshift64*).
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    pub fn between(&mut self, from: f64, to: f64) -> f64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        let unit = (self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 11) as f64 / (1u64 << 53) as f64;
        from + (to - from) * unit
    }
}

/// Some connections are kept, at a steady load with its chances; a job comes, works and is
/// gone; an instance is replaced. Of each look: connections, those made so far, and what was asked so far.
pub fn course(random: &mut Random, looks: u64) -> Vec<(u64, u64, u64)> {
    let kept = random.between(5.0, 60.0) as u64;
    let rate = random.between(20.0, 3_000.0);
    let job =
        (random.between(0.0, looks as f64) as u64, random.between(1.0, 6.0) as u64, random.between(0.0, 30.0) as u64);
    let deployed = random.between(0.0, looks as f64) as u64;
    let replaced = random.between(0.0, kept as f64 / 2.0) as u64;
    let (mut made, mut asked) = (kept, 10_000);
    let mut course = Vec::new();
    for n in 0..looks {
        asked += (rate * random.between(0.0, 1.0)) as u64;
        let mut here = kept;
        if (job.0..job.0 + job.1).contains(&n) {
            if n == job.0 {
                made += job.2;
            }
            asked += job.2 * random.between(8.0, 40.0) as u64;
            here += job.2;
        }
        if n == deployed {
            made += replaced;
            asked += replaced * 3;
        }
        course.push((here, made, asked));
    }
    course
}
