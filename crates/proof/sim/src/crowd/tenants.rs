//! The databases and users of a crowd. Some have limits, which reloads change. It knows no clients.

use std::sync::{Arc, Mutex};

use driver::{PoolSpec, TenantLimits, Upstreams};
use pool::PoolConfig;
use seam::{PoolId, Tenant};

use crate::{harness::pool_spec, random::Rng};

/// Number of databases.
pub const DATABASES: usize = 3;
/// Number of users; the first has no name and no limits.
pub const USERS: usize = 3;

/// The index of a tenant: databases come first, then users.
pub type TenantIndex = usize;

/// Limits by tenant.
#[derive(Clone, Default)]
pub struct Limits(Arc<Mutex<[Option<TenantLimits>; DATABASES + USERS]>>);

impl Limits {
    pub fn of(&self, tenant: TenantIndex) -> Option<TenantLimits> {
        self.0.lock().expect("it does not panic")[tenant]
    }

    /// Draws new limits of all tenants, none above `most`. About half of the tenants, and the first user, get none.
    pub fn draw(&self, rng: &mut Rng, most: u32) {
        let drawn = std::array::from_fn(|tenant| {
            if tenant == DATABASES || rng.percent(50) {
                return None;
            }
            let hard_limit = 1 + rng.below(u64::from(most)) as u32;
            let soft_limit = (hard_limit * rng.pick(&[50, 80, 100]) as u32 / 100).max(1);
            Some(TenantLimits { soft_limit, hard_limit })
        });
        *self.0.lock().expect("it does not panic") = drawn;
    }
}

/// The name of a user.
pub fn user(number: usize) -> Arc<str> {
    if number == 0 { "".into() } else { format!("{number}").into() }
}

impl Upstreams for Limits {
    fn spec(&self, pool: PoolId) -> Option<PoolSpec> {
        Some(pool_spec("crowd", pool.0.to_string(), 0, PoolConfig::default()))
    }

    fn at_start(&self) -> Vec<PoolId> {
        Vec::new()
    }

    fn tenant(&self, pool: PoolId) -> Option<Tenant> {
        Some(Tenant::Database { protocol: "crowd", name: pool.0.to_string().into() })
    }

    fn limits(&self, tenant: &Tenant) -> Option<TenantLimits> {
        match tenant {
            Tenant::Database { name, .. } => self.of(name.parse().ok()?),
            Tenant::User(name) => self.of(DATABASES + name.parse::<usize>().ok()?),
        }
    }
}
