"""A directory server for tests: OpenLDAP's slapd, with one entry for each user. It knows no pooler.

Environment: SLAPD=path, if it is not in PATH or /usr/sbin; SLAPD_SCHEMA=folder of its schemas.
"""

import os
import pathlib
import shutil
import socket
import subprocess
import time

from support.postgres_cluster import free_port, give_away, unprivileged

ADMIN, ADMIN_PASSWORD = "cn=admin,dc=example,dc=net", "admin-secret"
BASE = "ou=people,dc=example,dc=net"


def binary(name="slapd"):
    found = os.environ.get("SLAPD") or shutil.which(name) or f"/usr/sbin/{name}"
    return pathlib.Path(found).with_name(name)


class LdapServer:
    """A server of these users and passwords, from `start` to `stop`."""

    def __init__(self, directory, users, certificate=None):
        self.directory, self.port, self.tls_port = pathlib.Path(directory), free_port(), free_port()
        self.directory.mkdir()
        (self.directory / "data").mkdir()
        schema = os.environ.get("SLAPD_SCHEMA", "/etc/ldap/schema")
        modules = next((p for p in [binary().parents[1] / "lib/ldap", pathlib.Path("/usr/lib/ldap")] if p.exists()))
        lines = [f"include {schema}/{name}.schema" for name in ("core", "cosine", "inetorgperson")]
        # As some directories do, it takes a name without a password for a guest, and lets that in.
        lines += ["allow bind_anon_dn"]
        if certificate:
            for source, name in [(certificate.certificate, "cert.pem"), (certificate.key, "key.pem")]:
                shutil.copy(source, self.directory / name)
            lines += [f"TLSCertificateFile {self.directory}/cert.pem", f"TLSCertificateKeyFile {self.directory}/key.pem"]
        lines += [f"modulepath {modules}", "moduleload back_mdb", "database mdb", "suffix dc=example,dc=net",
                  f"directory {self.directory}/data", f"rootdn {ADMIN}", f"rootpw {ADMIN_PASSWORD}",
                  "access to attrs=userPassword by anonymous auth by * none", "access to * by dn.exact=\"" + ADMIN + "\" read by * auth"]
        self.config = self.directory / "slapd.conf"
        self.config.write_text("\n".join(lines) + "\n")
        entries = ["dn: dc=example,dc=net\nobjectClass: dcObject\nobjectClass: organization\ndc: example\no: example",
                   f"dn: {BASE}\nobjectClass: organizationalUnit\nou: people"]
        entries += [f"dn: uid={user},{BASE}\nobjectClass: inetOrgPerson\nuid: {user}\ncn: {user} of the tests\nsn: {user}\n"
                    f"mail: {user}@example.net\nuserPassword: {password}" for user, password in users.items()]
        for path in [self.directory, *self.directory.rglob("*")]:
            give_away(path)
        added = subprocess.run([binary("slapadd"), "-f", str(self.config)], input="\n\n".join(entries) + "\n", text=True,
                               capture_output=True, **unprivileged())
        assert added.returncode == 0, added.stderr
        self.process = None

    def start(self):
        urls = f"ldap://127.0.0.1:{self.port}/ ldaps://127.0.0.1:{self.tls_port}/"
        with (self.directory / "log").open("ab") as log:
            self.process = subprocess.Popen([binary(), "-f", str(self.config), "-h", urls, "-d", "none"], stdout=log, stderr=log,
                                            **unprivileged())
        deadline = time.monotonic() + 10
        while True:
            try:
                return socket.create_connection(("127.0.0.1", self.port), 1).close()
            except OSError:
                assert time.monotonic() < deadline and self.process.poll() is None, (self.directory / "log").read_text()
                time.sleep(0.02)

    def stop(self):
        if self.process:
            self.process.kill()
            self.process.wait()
            self.process = None
