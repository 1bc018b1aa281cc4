"""Starts the containers of rendered manifests in Docker, as a node would: their commands, arguments, users, restrictions and volumes.

    pods.py <folder>     reads network.yaml and secrets.yaml there, and keeps volumes there

StatefulSets come first, then init containers and replicas of Deployments. A container is named as its pod would be, NAME-0, and has the names
that the headless Service gives to it. What only a cluster does is left out: probes, policies, restarts, the Ingress.
"""

import base64
import os
import pathlib
import subprocess
import sys

import yaml

# The network of all containers.
NETWORK = "pods"


class Pods:
    def __init__(self, folder):
        self.folder = pathlib.Path(folder)
        items = [item for name in ("network", "secrets") for item in yaml.safe_load_all((self.folder / f"{name}.yaml").read_text())]
        self.items = {(item["kind"], item["metadata"]["name"]): item for item in items}

    def of(self, kind):
        return [item for (found, _), item in self.items.items() if found == kind]

    def files(self, kind, name, group, mode):
        """A Secret or a ConfigMap as the kubelet mounts it: links to files that belong to the pod's group."""
        folder = self.folder / f"{kind}-{name}"
        if not folder.exists():
            folder.mkdir()
            for file, content in self.items[kind, name]["data"].items():
                data = folder / f"..{file}"
                data.write_bytes(base64.b64decode(content) if kind == "Secret" else content.encode())
                os.chown(data, 0, group)
                data.chmod(mode | 0o040)
                (folder / file).symlink_to(data.name)
        return folder

    def claim(self, pod, name, group):
        folder = self.folder / f"{name}-{pod}"
        folder.mkdir(exist_ok=True)
        os.chown(folder, 0, group)
        folder.chmod(0o2775)
        return folder

    def variable(self, pod, variable):
        if "value" in variable:
            return variable["value"]
        source = variable["valueFrom"]
        if "fieldRef" in source:
            assert source["fieldRef"]["fieldPath"] == "metadata.name", source
            return pod
        reference = source["secretKeyRef"]
        return base64.b64decode(self.items["Secret", reference["name"]]["data"][reference["key"]]).decode()

    def start(self, pod, spec, container, names=(), wait=False):
        user, own = spec["securityContext"], container["securityContext"]
        group = user["fsGroup"]
        command = ["docker", "run", "--network", NETWORK, "--user", f"{user['runAsUser']}:{user['runAsGroup']}", "--group-add", str(group)]
        command += ["--rm"] if wait else ["--detach", "--name", pod]
        command += [f"--network-alias={name}" for name in names]
        command += [f"--cap-drop={name}" for name in own["capabilities"]["drop"]]
        if own["readOnlyRootFilesystem"]:
            command.append("--read-only")
        if not own["allowPrivilegeEscalation"]:
            command.append("--security-opt=no-new-privileges")
        volumes = {volume["name"]: volume for volume in spec["volumes"]}
        for mount in container["volumeMounts"]:
            at, volume = mount["mountPath"], volumes.get(mount["name"], {})
            if "emptyDir" in volume:
                command.append(f"--tmpfs={at}")
            elif "secret" in volume:
                folder = self.files("Secret", volume["secret"]["secretName"], group, volume["secret"]["defaultMode"])
                command.append(f"--volume={folder}:{at}:ro")
            elif "configMap" in volume:
                command.append(f"--volume={self.files('ConfigMap', volume['configMap']['name'], group, 0o644)}:{at}:ro")
            else:
                command.append(f"--volume={self.claim(pod, mount['name'], group)}:{at}")
        variables = {variable["name"]: self.variable(pod, variable) for variable in container.get("env", [])}
        command += [f"--env={name}={value}" for name, value in variables.items()]
        program, arguments = container.get("command", []), container.get("args", [])
        for name, value in variables.items():
            arguments = [argument.replace(f"$({name})", value) for argument in arguments]
        if program:
            command.append(f"--entrypoint={program[0]}")
        image = container["image"].rpartition("/")[2]
        subprocess.run([*command, image, *program[1:], *arguments], check=True, stdout=subprocess.DEVNULL)

    def start_all(self):
        for item in [*self.of("StatefulSet"), *self.of("Deployment")]:
            spec = item["spec"]["template"]["spec"]
            for container in spec.get("initContainers", []):
                self.start(f"{item['metadata']['name']}-init", spec, container, wait=True)
            for number in range(item["spec"]["replicas"]):
                pod = f"{item['metadata']['name']}-{number}"
                service = item["spec"].get("serviceName")
                for container in spec["containers"]:
                    self.start(pod, spec, container, [f"{pod}.{service}"] if service else [])


if __name__ == "__main__":
    Pods(sys.argv[1]).start_all()
