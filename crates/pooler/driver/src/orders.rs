//! What an operator has ordered for the pools of a database, or for all pools, including pools that do not exist yet.

use std::collections::HashMap;

/// Databases with orders of their own; beyond that only orders for all are taken.
pub(crate) const MAX_ORDERED_DATABASES: usize = 4096;

/// A database, as orders name it: two that speak different protocols may be called the same.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct DatabaseName {
    /// See [`PoolSpec::protocol`](crate::PoolSpec::protocol).
    pub protocol: &'static str,
    /// See [`PoolSpec::ordered_as`](crate::PoolSpec::ordered_as).
    pub database: String,
}

/// What an operator has ordered for a database.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Order {
    /// Hold back all clients that want a server, and keep no server.
    pub(crate) paused: bool,
    /// Let clients go, and no new ones in.
    pub(crate) drained: bool,
    /// Let no new clients in.
    pub(crate) disabled: bool,
}

impl Order {
    /// Whether clients that want a server are held back.
    pub fn is_paused(self) -> bool {
        self.paused
    }

    /// Whether its clients are sent away, and new ones refused.
    pub fn is_drained(self) -> bool {
        self.drained
    }

    /// Whether new clients are refused, and present ones stay.
    pub fn is_disabled(self) -> bool {
        self.disabled
    }

    /// Ends a pause and a drain. A database that takes no new clients goes on so.
    pub(crate) fn resume(&mut self) {
        *self = Self { disabled: self.disabled, ..Self::default() };
    }
}

#[derive(Debug, Default)]
pub(crate) struct Orders {
    all: Order,
    databases: HashMap<DatabaseName, Order>,
}

impl Orders {
    pub(crate) fn order_for(&self, database: &DatabaseName) -> Order {
        self.databases.get(database).copied().unwrap_or(self.all)
    }

    /// Changes the order for one database, or for all. False if too many databases have orders of their own.
    pub(crate) fn change(&mut self, database: Option<&DatabaseName>, change: impl Fn(&mut Order)) -> bool {
        let Some(database) = database else {
            change(&mut self.all);
            self.databases.values_mut().for_each(change);
            self.forget_ordinary();
            return true;
        };
        let mut order = self.order_for(database);
        change(&mut order);
        if self.databases.len() >= MAX_ORDERED_DATABASES && !self.databases.contains_key(database) {
            return false;
        }
        self.databases.insert(database.clone(), order);
        self.forget_ordinary();
        true
    }

    /// Whether this database has an order of its own.
    pub(crate) fn has(&self, database: &DatabaseName) -> bool {
        self.databases.contains_key(database)
    }

    pub(crate) fn are_all_paused(&self) -> bool {
        self.all.paused
    }

    pub(crate) fn any_drained(&self) -> bool {
        self.all.drained || self.databases.values().any(|order| order.drained)
    }

    fn forget_ordinary(&mut self) {
        let all = self.all;
        self.databases.retain(|_, order| *order != all);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(database: &str) -> DatabaseName {
        DatabaseName { protocol: "postgres", database: database.to_owned() }
    }

    #[test]
    fn an_order_for_all_holds_for_databases_without_a_pool() {
        let mut orders = Orders::default();
        assert!(orders.change(None, |order| order.paused = true));
        assert!(orders.order_for(&name("new")).paused);
        assert!(orders.change(Some(&name("a")), |order| order.paused = false));
        assert!(!orders.order_for(&name("a")).paused && orders.order_for(&name("b")).paused);
        assert!(orders.change(None, |order| order.paused = false));
        assert!(!orders.order_for(&name("b")).paused && orders.databases.is_empty());
    }

    #[test]
    fn an_order_for_all_leaves_the_other_orders_of_a_database_alone() {
        let mut orders = Orders::default();
        assert!(orders.change(Some(&name("a")), |order| order.drained = true));
        assert!(orders.change(None, |order| order.paused = true));
        assert_eq!(orders.order_for(&name("a")), Order { paused: true, drained: true, disabled: false });
        assert!(orders.any_drained() && !orders.order_for(&name("b")).drained);
    }

    #[test]
    fn a_resumed_database_is_still_disabled() {
        let mut orders = Orders::default();
        assert!(orders.change(Some(&name("a")), |order| (order.paused, order.disabled) = (true, true)));
        assert!(orders.change(None, Order::resume));
        assert!(orders.order_for(&name("a")).is_disabled() && !orders.order_for(&name("a")).is_paused());
        assert!(orders.change(Some(&name("a")), |order| order.disabled = false));
        assert!(orders.databases.is_empty());
    }

    #[test]
    fn databases_of_two_protocols_may_be_called_the_same() {
        let mut orders = Orders::default();
        assert!(orders.change(Some(&name("0")), |order| order.paused = true));
        let other = DatabaseName { protocol: "redis", ..name("0") };
        assert!(orders.order_for(&name("0")).paused && !orders.order_for(&other).paused);
    }

    #[test]
    fn orders_are_bounded() {
        let mut orders = Orders::default();
        for n in 0..MAX_ORDERED_DATABASES {
            assert!(orders.change(Some(&name(&format!("d{n}"))), |order| order.paused = true));
        }
        assert!(!orders.change(Some(&name("one more")), |order| order.paused = true));
        assert!(orders.change(Some(&name("d7")), |order| order.paused = false));
        assert!(orders.change(Some(&name("one more")), |order| order.paused = true));
    }
}
