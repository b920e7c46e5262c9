//! Random schedules against the idle queue, beside a plain list.

use std::time::Duration;

use pool::{IdleQueue, IdleTicket, Time};
use proptest::prelude::*;

proptest! {
    #[test]
    fn it_behaves_as_a_plain_list_would(steps in prop::collection::vec(any::<(u8, u8)>(), 0..400)) {
        let mut queue = IdleQueue::new();
        let mut list: Vec<(u32, Time, IdleTicket)> = vec![];
        let (mut now, mut key) = (Time(0), 0);
        for (op, n) in steps {
            match op % 4 {
                0 | 1 => {
                    key += 1;
                    list.push((key, now, queue.push(key, now)));
                }
                2 if !list.is_empty() => {
                    let (key, _, ticket) = list.remove(usize::from(n) % list.len());
                    assert_eq!(queue.remove(ticket), key);
                }
                _ => {
                    now = now + Duration::from_nanos(u64::from(n));
                    let min = Duration::from_nanos(200);
                    let due = list.first().is_some_and(|(_, since, _)| *since + min <= now);
                    let expected = due.then(|| list.remove(0).0);
                    assert_eq!(queue.pop_idle_for(min, now), expected);
                }
            }
            assert_eq!(queue.oldest(), list.first().map(|(key, since, _)| (*key, *since)));
            assert_eq!((queue.len(), queue.is_empty()), (list.len(), list.is_empty()));
        }
    }
}
