//! How fast the machine itself was at each visit. A machine that others share can be twice as fast in one minute as in
//! the next. Two visits of one point then tell more about the minute than about the point, and only visits close in
//! time can be compared. So the change that visits of the same points show over time is taken out of all visits.
//!
//! The logarithm of throughput is modelled as a level of each point, plus a random walk that all points share (the
//! speed of the machine), plus noise of each visit. Restricted maximum likelihood (Patterson and Thompson 1971) finds
//! how much the walk moves; unless a walk explains the visits clearly better than none, there is no correction. The
//! residual of a visit is what the other visits do not predict (the leave-one-out residual of a Gaussian process:
//! Rasmussen and Williams 2006, equation 5.12), so that no visit confirms itself.

use report::result::sweep::Visit;

/// Candidates for the variance that the walk gains per second, relative to that of a visit's noise.
const WALK_VARIANCES: [f64; 7] = [0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0];
/// Gain in log-likelihood that a walk needs over no walk.
const MIN_LIKELIHOOD_GAIN: f64 = 2.0;
/// Repeated visits that a correction needs.
const MIN_REPEATS: usize = 6;

/// What to add to the logarithm of each visit's throughput; `None`: the speed of the machine did not change visibly.
pub(crate) fn corrections(visits: &[Visit], logs: &[f64]) -> Option<Vec<f64>> {
    let repeated: Vec<usize> = (0..visits.len())
        .filter(|&i| logs[i].is_finite() && visits.iter().filter(|v| v.clients == visits[i].clients).count() > 1)
        .collect();
    let mut groups: Vec<u32> = repeated.iter().map(|&i| visits[i].clients).collect();
    groups.sort_unstable();
    groups.dedup();
    if repeated.len() < groups.len() + MIN_REPEATS {
        return None;
    }
    let start = visits.iter().map(|v| v.at_s).fold(f64::INFINITY, f64::min);
    let repeated_visits = RepeatedVisits {
        times: repeated.iter().map(|&i| visits[i].at_s - start).collect(),
        group: repeated.iter().map(|&i| groups.binary_search(&visits[i].clients).expect("one of them")).collect(),
        logs: repeated.iter().map(|&i| logs[i]).collect(),
        group_count: groups.len(),
    };
    let calm = repeated_visits.fit(0.0)?;
    let found = WALK_VARIANCES.iter().filter_map(|&walk_variance| repeated_visits.fit(walk_variance));
    let found = found.reduce(|best, one| if one.likelihood > best.likelihood { one } else { best })?;
    if found.likelihood < calm.likelihood + MIN_LIKELIHOOD_GAIN {
        return None;
    }
    let mut changes: Vec<f64> = visits.iter().map(|visit| -found.walk(&repeated_visits, visit.at_s - start)).collect();
    for (at, (&i, left)) in repeated.iter().zip(found.residuals(&repeated_visits)).enumerate() {
        changes[i] = found.levels[repeated_visits.group[at]] + left - logs[i];
    }
    // The corrected throughput is that at the mean speed of the machine.
    let mean = changes.iter().sum::<f64>() / changes.len() as f64;
    Some(changes.into_iter().map(|change| change - mean).collect())
}

/// The visits of points that were visited more than once.
struct RepeatedVisits {
    /// Seconds since the first visit of all.
    times: Vec<f64>,
    group: Vec<usize>,
    logs: Vec<f64>,
    group_count: usize,
}

/// The model fitted to them for one variance of the walk.
struct Fitted {
    walk_variance: f64,
    likelihood: f64,
    /// Of each point.
    levels: Vec<f64>,
    /// The covariance, decomposed.
    covariance: Cholesky,
    /// Its inverse times the residuals from the levels.
    weights: Vec<f64>,
}

impl RepeatedVisits {
    fn fit(&self, walk_variance: f64) -> Option<Fitted> {
        let count = self.times.len();
        let covariance =
            Cholesky::of(count, |i, j| walk_variance * self.times[i].min(self.times[j]) + f64::from(u8::from(i == j)))?;
        let of_group =
            |group: usize| (0..count).map(|i| f64::from(u8::from(self.group[i] == group))).collect::<Vec<_>>();
        let columns: Vec<Vec<f64>> = (0..self.group_count).map(|group| covariance.solve(&of_group(group))).collect();
        let sum = |values: &[f64], group: usize| {
            (0..count).filter(|&i| self.group[i] == group).map(|i| values[i]).sum::<f64>()
        };
        let normal = Cholesky::of(self.group_count, |i, j| sum(&columns[i], j))?;
        let solved = covariance.solve(&self.logs);
        let right: Vec<f64> = (0..self.group_count).map(|group| sum(&solved, group)).collect();
        let levels = normal.solve(&right);
        let left: Vec<f64> = (0..count).map(|i| self.logs[i] - levels[self.group[i]]).collect();
        let weights = covariance.solve(&left);
        let freedom = (count - self.group_count) as f64;
        let squares: f64 = left.iter().zip(&weights).map(|(a, b)| a * b).sum();
        let likelihood =
            -0.5 * (covariance.log_determinant() + normal.log_determinant() + freedom * (squares / freedom).ln());
        likelihood.is_finite().then_some(Fitted { walk_variance, likelihood, levels, covariance, weights })
    }
}

impl Fitted {
    /// The estimate of the walk at a time.
    fn walk(&self, repeated_visits: &RepeatedVisits, time: f64) -> f64 {
        repeated_visits
            .times
            .iter()
            .zip(&self.weights)
            .map(|(at, weight)| self.walk_variance * at.min(time) * weight)
            .sum()
    }

    /// The part of each visit that the others do not predict.
    fn residuals(&self, repeated_visits: &RepeatedVisits) -> Vec<f64> {
        let count = repeated_visits.times.len();
        let unit = |i: usize| (0..count).map(|j| f64::from(u8::from(i == j))).collect::<Vec<_>>();
        (0..count).map(|i| self.weights[i] / self.covariance.solve(&unit(i))[i]).collect()
    }
}

/// A symmetric positive matrix as L times its transpose.
struct Cholesky {
    rows: Vec<Vec<f64>>,
}

impl Cholesky {
    /// `None`: it is not positive.
    fn of(size: usize, value: impl Fn(usize, usize) -> f64) -> Option<Self> {
        let mut rows: Vec<Vec<f64>> = Vec::with_capacity(size);
        for i in 0..size {
            let mut row = Vec::with_capacity(i + 1);
            for (j, above) in rows.iter().enumerate() {
                let done: f64 = row.iter().zip(above).map(|(a, b)| a * b).sum();
                row.push((value(i, j) - done) / above[j]);
            }
            let left = value(i, i) - row.iter().map(|v: &f64| v * v).sum::<f64>();
            if left.is_nan() || left <= 0.0 {
                return None;
            }
            row.push(left.sqrt());
            rows.push(row);
        }
        Some(Self { rows })
    }

    /// The inverse times a vector.
    fn solve(&self, right: &[f64]) -> Vec<f64> {
        let mut found = right.to_vec();
        for i in 0..found.len() {
            let done: f64 = (0..i).map(|k| self.rows[i][k] * found[k]).sum();
            found[i] = (found[i] - done) / self.rows[i][i];
        }
        for i in (0..found.len()).rev() {
            let done: f64 = (i + 1..found.len()).map(|k| self.rows[k][i] * found[k]).sum();
            found[i] = (found[i] - done) / self.rows[i][i];
        }
        found
    }

    fn log_determinant(&self) -> f64 {
        self.rows.iter().enumerate().map(|(i, row)| 2.0 * row[i].ln()).sum()
    }
}

#[cfg(test)]
mod tests {
    use arrivals::Random;

    use super::*;

    /// Thirty-six visits of six points, each 3 s after the one before, on a machine that is slower by half now and
    /// then.
    fn visits(seed: u64, share: f64, noise: f64) -> Vec<Visit> {
        let mut random = Random::new(seed);
        let mut slow = false;
        (0..36)
            .map(|i| {
                slow ^= random.unit() < 0.1;
                let speed = if slow { share } else { 1.0 };
                let clients = 1 + (i * 5 % 6) as u32;
                let throughput = f64::from(100 + clients) * speed * (1.0 + noise * random.normal());
                Visit { at_s: i as f64 * 3.0, clients, throughput, ..Visit::default() }
            })
            .collect()
    }

    fn logs(visits: &[Visit]) -> Vec<f64> {
        visits.iter().map(|v| v.throughput.ln()).collect()
    }

    /// The standard deviation of logarithms about the truth, but for what all have in common.
    fn deviation(visits: &[Visit], changes: &[f64]) -> f64 {
        let left: Vec<f64> = visits
            .iter()
            .zip(changes)
            .map(|(v, change)| v.throughput.ln() + change - f64::from(100 + v.clients).ln())
            .collect();
        let mean = left.iter().sum::<f64>() / left.len() as f64;
        (left.iter().map(|l| (l - mean).powi(2)).sum::<f64>() / left.len() as f64).sqrt()
    }

    #[test]
    fn a_machine_that_is_slower_for_minutes_is_seen_through() {
        let (mut before, mut after, mut seen) = (0.0, 0.0, 0);
        for seed in 0..100 {
            let visits = visits(seed, 0.5, 0.03);
            before += deviation(&visits, &[0.0; 36]);
            let changes = corrections(&visits, &logs(&visits));
            seen += u32::from(changes.is_some());
            after += deviation(&visits, &changes.unwrap_or(vec![0.0; 36]));
        }
        assert!(seen >= 80 && after < 0.7 * before, "{seen} of 100, {before} to {after}");
    }

    #[test]
    fn noise_alone_gives_no_correction() {
        let seen = (0..200).filter(|&seed| {
            let visits = visits(seed, 1.0, 0.05);
            corrections(&visits, &logs(&visits)).is_some()
        });
        assert!(seen.count() <= 6, "more than 3% false alarms");
    }

    #[test]
    fn few_repeats_give_no_correction() {
        let visits = &visits(1, 0.5, 0.03)[..11];
        assert_eq!(corrections(visits, &logs(visits)), None);
    }
}
