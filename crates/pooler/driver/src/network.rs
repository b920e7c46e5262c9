//! Networks: the addresses that have certain bits in common. Opens no socket.

use std::net::IpAddr;

/// The addresses that are `base` in the bits of `mask`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Network {
    base: IpAddr,
    mask: u128,
}

impl Network {
    /// The network of an address and the length of its prefix.
    ///
    /// # Errors
    /// The length is more than the address has bits.
    pub fn new(base: IpAddr, length: u32) -> Result<Self, String> {
        let width: u32 = if base.is_ipv4() { 32 } else { 128 };
        if length > width {
            return Err(format!("behind the slash comes a number from 0 to {width}"));
        }
        let ones = u128::MAX.checked_shl(128 - length).unwrap_or(0);
        Ok(Self { base, mask: ones >> (128 - width) })
    }

    /// The network of an address and a mask of the same family; `None` if it is of another one.
    pub fn with_mask(base: IpAddr, mask: IpAddr) -> Option<Self> {
        (base.is_ipv4() == mask.is_ipv4()).then(|| Self { base, mask: bits(mask) })
    }

    /// Reads `10.0.0.0/8`, or an address alone.
    ///
    /// # Errors
    /// What is wrong, in a sentence.
    pub fn parse(text: &str) -> Result<Self, String> {
        let (address, length) = text.split_once('/').map_or((text, None), |(address, length)| (address, Some(length)));
        let base: IpAddr = address.parse().map_err(|_| format!("`{address}` is no address of IPv4 or IPv6"))?;
        let width: u32 = if base.is_ipv4() { 32 } else { 128 };
        match length.map_or(Ok(width), str::parse) {
            Ok(length) => Self::new(base, length),
            Err(_) => Err(format!("behind the slash comes a number from 0 to {width}")),
        }
    }

    pub fn contains(self, address: IpAddr) -> bool {
        self.base.is_ipv4() == address.is_ipv4() && bits(self.base) & self.mask == bits(address) & self.mask
    }
}

/// An address as a number. Addresses of different families are not comparable.
fn bits(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => u128::from(address.to_bits()),
        IpAddr::V6(address) => address.to_bits(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_network_has_the_addresses_that_begin_as_it_does() {
        let within = |network: &str, address: &str| Network::parse(network).unwrap().contains(address.parse().unwrap());
        assert!(within("0.0.0.0/0", "203.0.113.9") && !within("0.0.0.0/0", "::1") && within("::/0", "2001:db8::1"));
        assert!(within("203.0.113.9", "203.0.113.9") && !within("203.0.113.9/32", "203.0.113.8"));
        assert!(within("203.0.113.9/24", "203.0.113.200") && !within("203.0.113.9/25", "203.0.113.200"));
        assert!(within("2001:db8::/32", "2001:db8:ffff::1") && !within("2001:db8::/32", "2001:db9::1"));
        for wrong in ["10.0.0.0/33", "::/129", "10.0.0.0/x", "10.0.0.0/", "host", ""] {
            assert!(Network::parse(wrong).is_err(), "{wrong}");
        }
    }
}
