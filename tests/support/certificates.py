"""Certificates for tests, made with the openssl command. It knows no pooler and no database."""

import pathlib
import subprocess


def openssl(*arguments):
    done = subprocess.run(["openssl", *map(str, arguments)], text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    assert done.returncode == 0, done.stdout


KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")


class Authority:
    """A certificate authority. Each certificate is a pair of files in its folder, NAME.pem and NAME.key."""

    def __init__(self, folder, name="authority"):
        self.folder = pathlib.Path(folder)
        self.folder.mkdir(exist_ok=True)
        self.certificate, self.key = self.folder / f"{name}.pem", self.folder / f"{name}.key"
        openssl("req", "-x509", *KEY, "-days", 3650, "-subj", f"/CN=Test {name} of {self.folder.name}", "-keyout", self.key, "-out", self.certificate,
                "-addext", "keyUsage=critical,keyCertSign,cRLSign")

    def issue(self, name, common_name, alternatives="", days=365, key=KEY, digest="sha256"):
        """Makes a certificate and its key. `alternatives` are in openssl's notation: DNS:localhost,IP:127.0.0.1."""
        certificate, own_key, request = (self.folder / f"{name}.{kind}" for kind in ("pem", "key", "csr"))
        extensions = ["-addext", "basicConstraints=CA:FALSE"]
        if alternatives:
            extensions += ["-addext", f"subjectAltName={alternatives}"]
        openssl("req", *key, "-subj", f"/CN={common_name}", "-keyout", own_key, "-out", request, *extensions)
        openssl("x509", "-req", "-in", request, "-CA", self.certificate, "-CAkey", self.key, "-days", days,
                "-copy_extensions", "copyall", f"-{digest}", "-out", certificate)
        return Pair(certificate, own_key)


class Pair:
    """The files of a certificate and its key."""

    def __init__(self, certificate, key):
        self.certificate, self.key = certificate, key


class Certificates:
    """All certificates that the TLS tests need, made once."""

    def __init__(self, folder):
        folder = pathlib.Path(folder)
        self.authority = Authority(folder / "ours")
        self.other_authority = Authority(folder / "others")
        ours = self.authority.issue
        self.server = ours("server", "db.test", "DNS:localhost,IP:127.0.0.1")
        self.by_name_only = ours("by-name-only", "db.test", "DNS:localhost")
        self.elsewhere = ours("elsewhere", "elsewhere.test", "DNS:elsewhere.test")
        self.expired = ours("expired", "localhost", "DNS:localhost,IP:127.0.0.1", days=-1)
        self.common_name_only = ours("common-name-only", "localhost")
        self.client_app = ours("client-app", "app")
        self.client_other = ours("client-other", "visitor")
        self.client_stranger = self.other_authority.issue("client-app", "app")
        own = folder / "ours" / "self-signed.pem", folder / "ours" / "self-signed.key"
        openssl("req", "-x509", *KEY, "-days", 365, "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost",
                "-keyout", own[1], "-out", own[0])
        self.self_signed = Pair(*own)
