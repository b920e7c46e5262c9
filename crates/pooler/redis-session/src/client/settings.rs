//! What a client has set for its connection. It holds on whatever server executes the client's commands.

use crate::Version;

#[derive(Default, Debug)]
pub(super) struct Settings {
    database: u32,
    version: Version,
    /// CLIENT SETNAME; never empty.
    name: Option<Box<[u8]>>,
    library: Option<Box<Library>>,
}

#[derive(Default, Debug)]
struct Library {
    name: Box<[u8]>,
    version: Box<[u8]>,
}

impl Settings {
    pub(super) fn database(&self) -> u32 {
        self.database
    }

    pub(super) fn version(&self) -> Version {
        self.version
    }

    pub(super) fn name(&self) -> Option<&[u8]> {
        self.name.as_deref()
    }

    /// The library's name and its version; empty if they are not known.
    pub(super) fn library(&self) -> [&[u8]; 2] {
        self.library.as_ref().map_or([b"", b""], |library| [&library.name, &library.version])
    }

    pub(super) fn set_database(&mut self, database: u32) {
        self.database = database;
    }

    pub(super) fn set_version(&mut self, version: Version) {
        self.version = version;
    }

    pub(super) fn set_name(&mut self, name: Box<[u8]>) {
        self.name = Some(name).filter(|name| !name.is_empty());
    }

    pub(super) fn set_library_name(&mut self, name: Box<[u8]>) {
        self.library.get_or_insert_default().name = name;
    }

    pub(super) fn set_library_version(&mut self, version: Box<[u8]>) {
        self.library.get_or_insert_default().version = version;
    }

    /// RESET. It leaves the library as it is.
    pub(super) fn reset(&mut self) {
        (self.database, self.version, self.name) = (0, Version::Resp2, None);
    }
}
