#!/usr/bin/env bash
# Renders the example and the Secrets, checks them against the schemas of Kubernetes, and lets nats-server read its settings. Needs no cluster.
#   packaging/kubernetes/validate.sh                  with the coordinator of `make deb`'s build
#   PROFILE=dev packaging/kubernetes/validate.sh      with the one that the tests ran
set -euo pipefail
cd "$(dirname "$0")/../.."

target=${CARGO_TARGET_DIR:-$HOME/.cache/island/target}
profile=${PROFILE:-release}
version=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -1)
say() { printf '\033[1mkubernetes:\033[0m %s\n' "$*"; }
fail() { say "$*" >&2; exit 1; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

. packaging/kubernetes/tools.sh
mkdir "$work/bin"
built=$target/$([ "$profile" = dev ] && echo debug || echo "$profile")
ln -s "$built/island-coordinator" "$work/bin/"
export PATH=$work/bin:$PATH

# --- Manifests.
kubectl kustomize packaging/kubernetes/example >"$work/network.yaml"
if grep 'image:' "$work/network.yaml" | grep -v ":$version\$"; then fail "the example names other images than those of version $version"; fi
packaging/kubernetes/secrets.sh packaging/kubernetes/base/coordinator.toml "$work/keys" >"$work/secrets.yaml" 2>"$work/log" || { cat "$work/log" >&2; fail "secrets.sh failed"; }
for file in network secrets; do
    "$tools/python/bin/kubernetes-validate" --strict --quiet "$work/$file.yaml" || fail "$file.yaml is invalid"
done

# --- What the pods read: the Secrets as they are mounted, the arguments as they are expanded.
"$python" - "$work" <<'PY'
import base64, pathlib, subprocess, sys, yaml

work = pathlib.Path(sys.argv[1])
def load(name):
    return {(item["kind"], item["metadata"]["name"]): item for item in yaml.safe_load_all((work / name).read_text())}
network, secrets = load("network.yaml"), load("secrets.yaml")
for name in ("island-fabric", "island-nats"):
    (work / name).mkdir()
    for file, content in secrets["Secret", name]["data"].items():
        (work / name / file).write_bytes(base64.b64decode(content))
stateful = network["StatefulSet", "nats"]["spec"]
[container] = stateful["template"]["spec"]["containers"]
for number in range(stateful["replicas"]):
    conf = container["args"][1].replace("$(POD_NAME)", f"nats-{number}")
    text = (work / "island-nats" / pathlib.Path(conf).name).read_text()
    # On the volume of the pod, not in the folder that the Secrets were made in.
    assert f'store_dir: "/var/lib/island-nats/jetstream-nats-{number}"' in text and str(work) not in text, text
settings = next(item for (kind, _), item in network.items() if kind == "ConfigMap")["data"]["coordinator.toml"]
(work / "coordinator.toml").write_text(settings)
# The coordinator has the commands and options that its containers are started with.
pod = network["Deployment", "island-coordinator"]["spec"]["template"]["spec"]
for started in [*pod["initContainers"], *pod["containers"]]:
    subprocess.run([*started["command"], "--help"], check=True, stdout=subprocess.DEVNULL)
# A pod gets no new connections when it stops: its endpoints are removed before.
[serving] = pod["containers"]
pause = int(serving["lifecycle"]["preStop"]["exec"]["command"][1])
assert 0 < pause < pod["terminationGracePeriodSeconds"] - 15, pause
# Coordinators reach NATS, PostgreSQL, names, and webhooks and providers at the port of HTTPS.
egress = {port["port"] for rule in network["NetworkPolicy", "island-coordinator"]["spec"]["egress"] for port in rule["ports"]}
assert {4222, 5432, 443, 53} <= egress, egress
# Services and disruption budgets name pods that there are.
for kind, name in network:
    item = network[kind, name]["spec"] if "spec" in network[kind, name] else {}
    if kind in ("Service", "PodDisruptionBudget"):
        labels = item["selector"].get("matchLabels", item["selector"])
        pods = [other["spec"]["template"]["metadata"]["labels"] for (what, _), other in network.items() if what in ("Deployment", "StatefulSet")]
        assert any(labels.items() <= pod.items() for pod in pods), f"{kind} {name} selects no pod"
PY
for conf in "$work"/island-nats/nats-nats-*.conf; do
    .tools/bin/nats-server -t -c "$conf" >"$work/log" 2>&1 || { cat "$work/log" >&2; fail "nats-server refuses its settings"; }
done
ISLAND_COORDINATOR_CATALOGUE__DIR=$PWD/cargos ISLAND_COORDINATOR_DATABASE__URL=postgres://island@database.internal/island \
    island-coordinator --config "$work/coordinator.toml" --fabric-dir "$work/island-fabric" config check
say "the manifests are valid"
