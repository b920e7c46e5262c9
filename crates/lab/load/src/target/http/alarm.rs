//! A timer of nanoseconds for the runtime, whose own has milliseconds: arrivals of an open load are planned more
//! finely.

use std::io::{self, ErrorKind};

use pool::Time;
use rustix::time::{Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec};
use tokio::net::unix::pipe::Receiver;

/// One timer, set again and again.
pub(super) struct Alarm {
    /// For the runtime a timer is what a pipe is: a descriptor that can be read from at some time.
    timer: Receiver,
    set: Option<Time>,
}

impl Alarm {
    /// A timer that is off.
    pub(super) fn new() -> io::Result<Self> {
        let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
        let timer = rustix::time::timerfd_create(TimerfdClockId::Monotonic, flags)?;
        Ok(Self { timer: Receiver::from_owned_fd_unchecked(timer)?, set: None })
    }

    /// Waits until a time. May be dropped half way and asked again; only another time costs a system call.
    pub(super) async fn wait(&mut self, until: Time, now: Time) -> io::Result<()> {
        if until <= now {
            // Others have their turn first.
            tokio::task::yield_now().await;
            return Ok(());
        }
        if self.set != Some(until) {
            let nanos = until.since(now).as_nanos().max(1);
            let it_value = Timespec { tv_sec: (nanos / 1_000_000_000) as i64, tv_nsec: (nanos % 1_000_000_000) as _ };
            let it_interval = Timespec { tv_sec: 0, tv_nsec: 0 };
            let time = Itimerspec { it_interval, it_value };
            rustix::time::timerfd_settime(&self.timer, TimerfdTimerFlags::empty(), &time)?;
            self.set = Some(until);
        }
        loop {
            self.timer.readable().await?;
            match self.timer.try_read(&mut [0; 8]) {
                Ok(_) => {
                    self.set = None;
                    return Ok(());
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;

    #[test]
    fn it_goes_off_on_time_and_can_be_set_again_before_that() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let mut alarm = Alarm::new().unwrap();
            let late = tokio::time::timeout(Duration::from_millis(5), alarm.wait(Time(10_000_000_000), Time(0))).await;
            assert!(late.is_err());
            let began = Instant::now();
            for _ in 0..20 {
                alarm.wait(Time(1_300_000), Time(0)).await.unwrap();
            }
            let each = began.elapsed() / 20;
            assert!(each >= Duration::from_micros(1_300) && each < Duration::from_millis(10), "{each:?}");
        });
    }
}
