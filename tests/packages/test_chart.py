"""The Helm chart: rendered with its values and with others, it says what the documentation promises."""

import json
import os
import re
import shutil
import subprocess

import pytest

from support import pooler

pytestmark = pytest.mark.poolhouse_only

CHART = pooler.ROOT / "packaging/helm/poolhouse"
RENDERER = pooler.ROOT / "tests/packages/chart"
# Helm itself, where it is: go install helm.sh/helm/v3/cmd/helm@latest
HELM = os.environ.get("HELM") or shutil.which("helm")
# A Helm that was built so takes an old version of Kubernetes for granted.
KUBERNETES = "1.30.0"


@pytest.fixture(scope="module")
def renderer(tmp_path_factory):
    """The program that renders the chart."""
    if not shutil.which("go"):
        pytest.skip("no Go, which builds the renderer")
    program = tmp_path_factory.mktemp("chart") / "render"
    built = subprocess.run(["go", "build", "-mod=readonly", "-o", str(program), "."], cwd=RENDERER, text=True, capture_output=True, timeout=80)
    if built.returncode and "dial" in built.stderr:
        pytest.skip("the renderer's modules cannot be had")
    assert built.returncode == 0, built.stderr
    return program


@pytest.fixture(scope="module")
def render(renderer):
    """Renders the chart with overrides of its values: a list of objects."""

    def render(**values):
        done = subprocess.run([str(renderer), str(CHART)], input=json.dumps(values), text=True, capture_output=True, timeout=20)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    return render


def only(objects, kind, name="pool-poolhouse"):
    (found,) = [made for made in objects if (made["kind"], made["metadata"]["name"]) == (kind, name)]
    return found


def seconds(text):
    return int(re.fullmatch(r"(\d+)s", text)[1])


def test_a_rollout_keeps_clients_served(render):
    objects = render()
    deployment = only(objects, "Deployment")["spec"]
    assert deployment["strategy"]["rollingUpdate"] == {"maxSurge": 1, "maxUnavailable": 0}
    pod = deployment["template"]["spec"]
    (container,) = pod["containers"]
    assert container["readinessProbe"]["httpGet"] == {"path": "/ready", "port": "admin"}
    assert container["livenessProbe"]["httpGet"] == {"path": "/health", "port": "admin"}
    # What a pod has to do before it is killed fits into its grace period.
    config = only(objects, "ConfigMap")["data"]["poolhouse.toml"]
    drain = seconds(re.search(r'drain_time = "(\w+)"', config)[1])
    hook = container["lifecycle"]["preStop"]["exec"]["command"]
    assert hook[:-1] == ["/usr/bin/poolhouse", "ctl", "http://127.0.0.1:9930", "drain", "--over"]
    assert seconds(hook[-1]) + drain < pod["terminationGracePeriodSeconds"]
    assert only(objects, "PodDisruptionBudget")["spec"]["maxUnavailable"] == 1


def test_a_pod_has_no_privileges_and_its_secrets_are_files(render):
    pod = only(render(), "Deployment")["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert pod["securityContext"]["runAsNonRoot"] and pod["securityContext"]["runAsUser"] == 65532
    assert container["securityContext"] == {"allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]}}
    assert "env" not in container and pod["enableServiceLinks"] is False and pod["automountServiceAccountToken"] is False
    assert {"name": "secret-poolhouse", "mountPath": "/run/secrets/poolhouse", "readOnly": True} in container["volumeMounts"]


def test_every_part_finds_the_pods(render):
    objects = render(serviceMonitor={"enabled": True})
    deployment = only(objects, "Deployment")["spec"]
    labels = deployment["template"]["metadata"]["labels"]
    selectors = [deployment["selector"]["matchLabels"], only(objects, "PodDisruptionBudget")["spec"]["selector"]["matchLabels"],
                 *(only(objects, "Service", name)["spec"]["selector"] for name in ("pool-poolhouse", "pool-poolhouse-admin"))]
    assert all(selector.items() <= labels.items() and selector for selector in selectors)
    ports = {port["name"]: port["containerPort"] for port in deployment["template"]["spec"]["containers"][0]["ports"]}
    for name in ("pool-poolhouse", "pool-poolhouse-admin"):
        assert all(port["targetPort"] in ports for port in only(objects, "Service", name)["spec"]["ports"])
    # The monitor finds one service, that of the admin address.
    wanted = only(objects, "ServiceMonitor")["spec"]["selector"]["matchLabels"]
    assert [made["metadata"]["name"] for made in objects if made["kind"] == "Service" and wanted.items() <= made["metadata"]["labels"].items()] == ["pool-poolhouse-admin"]


def test_the_example_configuration_is_accepted(render, tmp_path):
    config = only(render(), "ConfigMap")["data"]["poolhouse.toml"]
    (tmp_path / "database-url").write_text("postgres://app:secret@db:5432\n")
    (tmp_path / "admin-token").write_text("0123456789abcdef0123456789abcdef\n")
    for text in (config, config.replace("# token_file", "token_file")):
        path = tmp_path / "poolhouse.toml"
        path.write_text(text.replace("/run/secrets/poolhouse/", f"{tmp_path}/"))
        for file in tmp_path.iterdir():
            file.chmod(0o600)
        done = subprocess.run([pooler.BINARY, "check", str(path), "--insecure-no-auth"], text=True, capture_output=True, timeout=20, env=os.environ)
        assert done.returncode == 0, done.stderr


def test_the_order_to_drain_has_the_token(render):
    (container,) = only(render(adminTokenFile="/run/secrets/poolhouse/admin-token"), "Deployment")["spec"]["template"]["spec"]["containers"]
    assert container["lifecycle"]["preStop"]["exec"]["command"][3:5] == ["--token-file", "/run/secrets/poolhouse/admin-token"]


VALUES = [
    {"existingConfigMap": "mine"},
    {"podDisruptionBudget": {"enabled": False}, "serviceAccount": {"create": False}},
    {"env": [{"name": "APP_PASSWORD", "valueFrom": {"secretKeyRef": {"name": "app", "key": "password"}}}], "envFrom": [{"secretRef": {"name": "more"}}]},
    {"secrets": [{"name": "poolhouse"}, {"name": "tls"}], "extraVolumes": [{"name": "x", "emptyDir": {}}], "extraVolumeMounts": [{"name": "x", "mountPath": "/x"}]},
    {"nodeSelector": {"disk": "ssd"}, "tolerations": [{"operator": "Exists"}], "affinity": {"nodeAffinity": {}}, "priorityClassName": "high",
     "topologySpreadConstraints": [{"maxSkew": 2, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}], "imagePullSecrets": [{"name": "registry"}],
     "podAnnotations": {"a": "b"}, "podLabels": {"c": "d"}, "service": {"annotations": {"e": "f"}}},
]
NAMES = ["config", "without", "environment", "secrets", "placement"]


@pytest.mark.parametrize("values", VALUES, ids=NAMES)
def test_values_that_may_be_set_are_used(render, values):
    text = json.dumps(render(**values), sort_keys=True)
    for name in ("existingConfigMap", "priorityClassName"):
        assert values.get(name, "") in text
    for name in ("nodeSelector", "tolerations", "affinity", "topologySpreadConstraints", "imagePullSecrets", "env", "envFrom"):
        assert name not in values or json.dumps(values[name], sort_keys=True) in text, name
    assert "null" not in text


def helm(*words):
    done = subprocess.run([HELM, *map(str, words)], text=True, capture_output=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.skipif(not HELM, reason="no Helm")
def test_helm_finds_no_fault():
    assert "0 chart(s) failed" in helm("lint", "--strict", CHART)


@pytest.mark.skipif(not HELM, reason="no Helm")
@pytest.mark.parametrize("values", [{}, {"serviceMonitor": {"enabled": True}}, *VALUES], ids=["default", "monitor", *NAMES])
def test_helm_renders_the_same(render, renderer, values, tmp_path):
    file = tmp_path / "values.json"
    file.write_text(json.dumps(values))
    text = helm("template", "pool", CHART, "--namespace", "shop", "--kube-version", KUBERNETES, "--values", file)
    rendered = subprocess.run([str(renderer)], input=text, text=True, capture_output=True, check=True)
    in_order = lambda objects: sorted(objects, key=lambda made: (made["kind"], made["metadata"]["name"]))
    assert in_order(json.loads(rendered.stdout)) == in_order(render(**values))
