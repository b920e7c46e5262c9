//! The Universal Scalability Law, fitted by nonlinear least squares: X(N) = gamma N / (1 + alpha (N - 1) + beta N (N -
//! 1)). Knows nothing of where the points come from, and draws no line beyond them.
//!
//! The method is Levenberg's and Marquardt's with the parameters kept at zero or above: a parameter at zero whose
//! derivative would push it below stays there for that step. (Three parameters and their bounds are less code than a
//! library's problem type would be, and the usual crate knows no bounds.) The law: N. J. Gunther, Guerrilla Capacity
//! Planning, Springer 2007.

use report::result::sweep::{Estimate, Fit, LinePoint};

const MAX_STEPS: u32 = 500;
/// Points of the line for drawing.
const LINE_POINTS: u32 = 96;
/// Parameters: gamma, alpha, beta.
const PARAMETERS: usize = 3;

/// What is needed for a fit: one point more than parameters, so that there is something to judge it by.
pub const MIN_POINTS: usize = PARAMETERS + 1;

pub(crate) type Vector = [f64; PARAMETERS];
pub(crate) type Matrix = [Vector; PARAMETERS];

/// The throughput of the law at a number of clients.
pub fn throughput(gamma: f64, alpha: f64, beta: f64, clients: f64) -> f64 {
    gamma * clients / (1.0 + alpha * (clients - 1.0) + beta * clients * (clients - 1.0))
}

/// Where the law has its peak: sqrt((1 - alpha) / beta), 1 where it only falls; `None` where it never falls.
pub fn peak(alpha: f64, beta: f64) -> Option<f64> {
    if alpha >= 1.0 {
        return Some(1.0);
    }
    (beta > 0.0).then(|| ((1.0 - alpha) / beta).sqrt().max(1.0))
}

/// Fits the law to pairs of clients and throughput.
///
/// # Errors
/// Says why it cannot: fewer than [`MIN_POINTS`] different numbers of clients, or no throughput.
pub fn fit(points: &[(f64, f64)]) -> Result<Fit, String> {
    let mut different: Vec<f64> = points.iter().map(|p| p.0).collect();
    different.sort_by(f64::total_cmp);
    different.dedup();
    if different.len() < MIN_POINTS {
        return Err(format!("the law needs {MIN_POINTS} different numbers of clients, there are {}", different.len()));
    }
    if points.iter().any(|&(n, x)| !(n >= 1.0 && x > 0.0 && n.is_finite() && x.is_finite())) {
        return Err("at some number of clients nothing was done, so there is no law to fit".to_owned());
    }
    let best = starts(points)
        .into_iter()
        .map(|start| descend(points, start))
        .min_by(|a, b| squares(points, a).total_cmp(&squares(points, b)))
        .expect("there are several starts");
    Ok(describe(points, best, different[0], *different.last().expect("several")))
}

/// Where to begin: the law made linear (N / X is linear in the three terms), and some usual values in case that is far
/// off.
fn starts(points: &[(f64, f64)]) -> Vec<Vector> {
    let mut normal = Matrix::default();
    let mut right = Vector::default();
    for &(n, x) in points {
        let terms = [1.0, n - 1.0, n * (n - 1.0)];
        for i in 0..PARAMETERS {
            right[i] += terms[i] * n / x;
            for j in 0..PARAMETERS {
                normal[i][j] += terms[i] * terms[j];
            }
        }
    }
    let gamma = points.iter().map(|&(n, x)| x / n).fold(0.0, f64::max);
    let mut starts = vec![[gamma, 0.0, 0.0], [gamma, 0.02, 1e-4], [gamma, 0.1, 0.01]];
    if let Some([c0, c1, c2]) = solve(normal, right)
        && c0 > 0.0
    {
        starts.push([1.0 / c0, (c1 / c0).max(0.0), (c2 / c0).max(0.0)]);
    }
    starts
}

/// One descent from a start to the nearest minimum.
fn descend(points: &[(f64, f64)], start: Vector) -> Vector {
    let mut at = start;
    let mut cost = squares(points, &at);
    let mut damping = 1e-3;
    for _ in 0..MAX_STEPS {
        let (normal, downhill) = derivatives(points, &at);
        // A parameter at zero whose derivative would push it below zero stays there for this step.
        let free: [bool; PARAMETERS] = std::array::from_fn(|i| at[i] > 0.0 || downhill[i] > 0.0);
        let mut damped = normal;
        let mut right = downhill;
        for i in 0..PARAMETERS {
            damped[i][i] += damping * normal[i][i].max(f64::MIN_POSITIVE);
            if !free[i] {
                damped[i] = std::array::from_fn(|j| if i == j { 1.0 } else { 0.0 });
                right[i] = 0.0;
            }
        }
        let Some(step) = solve(damped, right) else { return at };
        let next: Vector = std::array::from_fn(|i| (at[i] + step[i]).max(0.0));
        let next_cost = squares(points, &next);
        if next_cost < cost {
            let gain = (cost - next_cost) / cost;
            (at, cost) = (next, next_cost);
            damping = (damping / 5.0).max(1e-12);
            if gain < 1e-14 {
                return at;
            }
        } else {
            damping *= 4.0;
            if damping > 1e12 {
                return at;
            }
        }
    }
    at
}

/// Jacobian's product with itself, and with the residuals: the direction in which the squares fall.
fn derivatives(points: &[(f64, f64)], at: &Vector) -> (Matrix, Vector) {
    let mut normal = Matrix::default();
    let mut downhill = Vector::default();
    for &(n, x) in points {
        let row = gradient(at, n);
        let residual = x - throughput(at[0], at[1], at[2], n);
        for i in 0..PARAMETERS {
            downhill[i] += row[i] * residual;
            for j in 0..PARAMETERS {
                normal[i][j] += row[i] * row[j];
            }
        }
    }
    (normal, downhill)
}

/// The law's derivatives after gamma, alpha and beta.
fn gradient(at: &Vector, n: f64) -> Vector {
    let below = 1.0 + at[1] * (n - 1.0) + at[2] * n * (n - 1.0);
    let slope = -at[0] * n / (below * below);
    [n / below, slope * (n - 1.0), slope * n * (n - 1.0)]
}

fn squares(points: &[(f64, f64)], at: &Vector) -> f64 {
    points.iter().map(|&(n, x)| (x - throughput(at[0], at[1], at[2], n)).powi(2)).sum()
}

/// The fitted parameters with their intervals, and how well they describe the points.
fn describe(points: &[(f64, f64)], at: Vector, from: f64, to: f64) -> Fit {
    let count = points.len() as f64;
    let freedom = points.len() - PARAMETERS;
    let rest = squares(points, &at);
    let variance = rest / freedom as f64;
    let (normal, _) = derivatives(points, &at);
    let reach = student_quantile(freedom);
    let estimate = |i: usize| {
        let mut unit = Vector::default();
        unit[i] = 1.0;
        // The i-th column of the covariance; without one (a law that the points do not determine) the interval is open.
        let error = solve(normal, unit).map_or(f64::MAX, |column| (variance * column[i].max(0.0)).sqrt());
        let half = (reach * error).min(f64::MAX);
        Estimate { value: at[i], low: (at[i] - half).max(0.0), high: at[i] + half }
    };
    let mean = points.iter().map(|p| p.1).sum::<f64>() / count;
    let spread: f64 = points.iter().map(|p| (p.1 - mean).powi(2)).sum();
    let peak_clients = peak(at[1], at[2]);
    let line = (0..=LINE_POINTS).map(|i| {
        let clients = from * (to / from).powf(f64::from(i) / f64::from(LINE_POINTS));
        LinePoint { clients, throughput: throughput(at[0], at[1], at[2], clients) }
    });
    Fit {
        gamma: estimate(0),
        alpha: estimate(1),
        beta: estimate(2),
        peak_clients,
        peak_tested: peak_clients.is_some_and(|peak| (from..=to).contains(&peak)),
        r_squared: if spread > 0.0 { 1.0 - rest / spread } else { 0.0 },
        residual: variance.sqrt() / mean,
        line: line.collect(),
    }
}

/// Solves a small symmetric system by elimination with pivots, after bringing all diagonals to one (gamma and beta
/// differ by ten orders of magnitude). `None`: it is singular.
pub(crate) fn solve(mut matrix: Matrix, mut right: Vector) -> Option<Vector> {
    let scale: Vector = std::array::from_fn(|i| matrix[i][i].abs().sqrt());
    if scale.iter().any(|s| !(*s > 0.0 && s.is_finite())) {
        return None;
    }
    for i in 0..PARAMETERS {
        right[i] /= scale[i];
        for j in 0..PARAMETERS {
            matrix[i][j] /= scale[i] * scale[j];
        }
    }
    for column in 0..PARAMETERS {
        let pivot =
            (column..PARAMETERS).max_by(|&a, &b| matrix[a][column].abs().total_cmp(&matrix[b][column].abs()))?;
        if matrix[pivot][column].abs() < 1e-13 {
            return None;
        }
        matrix.swap(column, pivot);
        right.swap(column, pivot);
        for row in column + 1..PARAMETERS {
            let factor = matrix[row][column] / matrix[column][column];
            right[row] -= factor * right[column];
            let above = matrix[column];
            for (cell, upper) in matrix[row].iter_mut().zip(above).skip(column) {
                *cell -= factor * upper;
            }
        }
    }
    let mut found = Vector::default();
    for row in (0..PARAMETERS).rev() {
        let known: f64 = (row + 1..PARAMETERS).map(|j| matrix[row][j] * found[j]).sum();
        found[row] = (right[row] - known) / matrix[row][row];
    }
    Some(std::array::from_fn(|i| found[i] / scale[i]))
}

/// The 97.5% quantile of Student's distribution: from the usual table up to 10 degrees of freedom, beyond that by the
/// expansion of Abramowitz and Stegun 26.7.5.
pub(crate) fn student_quantile(freedom: usize) -> f64 {
    const TABLE: [f64; 10] = [12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228];
    assert!(freedom > 0, "an interval needs a degree of freedom");
    let n = freedom as f64;
    let z: f64 = 1.959_964;
    TABLE.get(freedom - 1).copied().unwrap_or_else(|| {
        z + (z.powi(3) + z) / (4.0 * n) + (5.0 * z.powi(5) + 16.0 * z.powi(3) + 3.0 * z) / (96.0 * n * n)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// SPEC SDM91 on a Sun SPARCcenter 2000: simulated users, scripts per hour (Gunther 2007; published with R's
    /// package usl).
    const SPEC_SDM91: [(f64, f64); 7] =
        [(1.0, 64.9), (18.0, 995.9), (36.0, 1652.4), (72.0, 1853.2), (108.0, 1828.9), (144.0, 1775.0), (216.0, 1702.2)];

    /// Cisco's benchmark of B. Schwartz, Practical Scalability Analysis with the Universal Scalability Law: throughput
    /// at 1 to 32.
    const CISCO: [f64; 32] = [
        955.16, 1878.91, 2688.01, 3548.68, 4315.54, 5130.43, 5931.37, 6531.08, 7219.8, 7867.61, 8278.71, 8646.7,
        9047.84, 9426.55, 9645.37, 9897.24, 10097.6, 10240.5, 10532.39, 10798.52, 11151.43, 11518.63, 11806.0,
        12089.37, 12075.41, 12177.29, 12211.41, 12158.93, 12155.27, 12118.04, 12140.4, 12074.39,
    ];

    fn cisco(upto: usize) -> Vec<(f64, f64)> {
        CISCO.iter().take(upto).enumerate().map(|(i, &x)| (i as f64 + 1.0, x)).collect()
    }

    fn near(found: f64, wanted: f64, tolerance: f64) {
        assert!((found - wanted).abs() <= tolerance * wanted.abs(), "{found} instead of {wanted}");
    }

    #[test]
    fn the_published_parameters_of_specsdm91_are_found_with_their_standard_errors() {
        let fit = fit(&SPEC_SDM91).unwrap();
        near(fit.alpha.value, 0.0277285, 2e-5);
        near(fit.beta.value, 0.0001044, 5e-4);
        near(fit.gamma.value, 89.9952330, 1e-5);
        let peak = fit.peak_clients.unwrap();
        near(peak, 96.52, 1e-4);
        near(throughput(fit.gamma.value, fit.alpha.value, fit.beta.value, peak), 1884.0, 5e-4);
        assert!(fit.peak_tested);
        // Published standard errors 0.0091217, 0.0000199 and 14.2134894 at 4 degrees of freedom, residual standard
        // error 82.8.
        near(fit.alpha.high - fit.alpha.value, 2.776 * 0.0091217, 1e-3);
        near(fit.beta.high - fit.beta.value, 2.776 * 0.0000199, 5e-3);
        near(fit.gamma.high - fit.gamma.value, 2.776 * 14.2134894, 1e-3);
        near(fit.residual * SPEC_SDM91.iter().map(|p| p.1).sum::<f64>() / 7.0, 82.8, 1e-3);
    }

    #[test]
    fn the_published_parameters_of_cisco_are_found() {
        let fit = fit(&cisco(32)).unwrap();
        near(fit.alpha.value, 0.02671591, 1e-5);
        near(fit.beta.value, 7.690945e-4, 1e-5);
        near(fit.gamma.value, 995.6486, 1e-5);
        near(fit.peak_clients.unwrap(), 35.57, 1e-3);
        near(throughput(fit.gamma.value, fit.alpha.value, fit.beta.value, 35.0), 12341.745, 1e-5);
        assert!(!fit.peak_tested, "35 lies beyond the 32 that were measured");
        assert!(fit.r_squared > 0.99);
    }

    #[test]
    fn a_peak_below_what_was_measured_was_not_tested_either() {
        let points: Vec<_> = [50.0, 70.0, 100.0, 200.0, 400.0].map(|n| (n, throughput(100.0, 0.02, 0.01, n))).to_vec();
        let fit = fit(&points).unwrap();
        assert!(fit.peak_clients.is_some_and(|peak| peak < 50.0) && !fit.peak_tested, "{fit:?}");
    }

    #[test]
    fn fitted_on_the_first_eight_points_the_law_is_wrong_about_the_peak_and_says_it_was_not_tested() {
        let fit = fit(&cisco(8)).unwrap();
        near(fit.peak_clients.unwrap(), 56.0, 0.02);
        assert!(!fit.peak_tested);
        assert!(fit.line.iter().all(|point| point.clients <= 8.0 + 1e-9), "no line beyond what was measured");
    }

    #[test]
    fn a_law_is_recovered_from_its_own_points_and_parameters_stay_at_zero_or_above() {
        for (gamma, alpha, beta) in [(1000.0, 0.03, 2e-4), (50.0, 0.2, 0.0), (7.0, 0.0, 1e-3), (9000.0, 0.0, 0.0)] {
            let points: Vec<_> =
                [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0].map(|n| (n, throughput(gamma, alpha, beta, n))).to_vec();
            let fit = fit(&points).unwrap();
            near(fit.gamma.value, gamma, 1e-4);
            assert!((fit.alpha.value - alpha).abs() < 1e-5 && fit.alpha.value >= 0.0, "{fit:?}");
            assert!((fit.beta.value - beta).abs() < 1e-7 && fit.beta.value >= 0.0, "{fit:?}");
        }
    }

    #[test]
    fn throughput_that_grows_faster_than_the_clients_does_not_make_a_parameter_negative() {
        let points: Vec<_> = [1.0, 2.0, 4.0, 8.0, 16.0].map(|n: f64| (n, 100.0 * n.powf(1.2))).to_vec();
        let fit = fit(&points).unwrap();
        assert!(fit.alpha.value == 0.0 && fit.beta.value == 0.0, "{fit:?}");
        assert_eq!(fit.peak_clients, None);
    }

    #[test]
    fn too_few_points_and_points_without_throughput_are_refused_with_a_reason() {
        assert!(fit(&cisco(3)).unwrap_err().contains("4 different"));
        assert!(fit(&[(1.0, 5.0), (2.0, 6.0), (4.0, 0.0), (8.0, 5.0)]).unwrap_err().contains("nothing was done"));
    }

    #[test]
    fn students_quantiles_agree_with_the_table() {
        for (freedom, wanted) in [(4, 2.776), (10, 2.228), (12, 2.179), (29, 2.045), (120, 1.980)] {
            near(student_quantile(freedom), wanted, 1e-3);
        }
    }
}
