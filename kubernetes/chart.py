#!/usr/bin/env python3
"""Checks what the chart renders, without a cluster: chart.py HELM AGENT.

HELM and AGENT are the programs. `helm lint` and `helm template` run with the chart's own values, with
all of them changed, and with none of the optional parts; what comes out is compared with what the
agent and Kubernetes ask for. Needs PyYAML.
"""

import pathlib
import subprocess
import sys

import yaml

CHART = str(pathlib.Path(__file__).parent / "chart")
# The oldest Kubernetes that it is for. A helm that `go build` makes takes 1.20 for the cluster's.
OLDEST = "1.26"
CHANGED = {
    "image": {"repository": "registry.example:5000/a/ginnel-agent", "tag": "7", "pullPolicy": "Always"},
    "imagePullSecrets": [{"name": "pull"}],
    "nodeSelector": {"disk": "ssd"},
    "tolerations": [{"key": "dedicated", "operator": "Equal", "value": "x"}],
    "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
        {"matchExpressions": [{"key": "a", "operator": "Exists"}]}]}}},
    "groups": 3,
    "broker": {"memory": "16M", "pairs": 9},
    "runtimeHandlers": ["", "other"],
    "host": {"nri": "/var/run/other", "library": "/opt/ginnel", "run": "/run/other"},
    "metrics": {"port": 9999, "annotations": {"a": "b"}},
    "resources": {"limits": {"memory": "64Mi"}},
    "seLinuxOptions": {"type": "spc_t"},
}
BARE = {"namespaces": False, "tolerations": [], "metrics": {"annotations": None}}


def run(*command, values):
    done = subprocess.run(command, input=yaml.dump(values), capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(command)}\n{done.stdout}{done.stderr}")
    return done.stdout


def rendered(helm, values):
    given = "--values", "-", "--kube-version", OLDEST
    run(helm, "lint", "--strict", CHART, *given, values=values)
    text = run(helm, "template", "ginnel", CHART, "--namespace", "there", *given, values=values)
    return {document["kind"]: document for document in yaml.safe_load_all(text) if document}


def must(truth, what):
    if not truth:
        sys.exit(f"the chart: {what}")


def arguments(container):
    """The agent's flags, as they stand in the pod."""
    return dict(argument.lstrip("-").split("=", 1) for argument in container["args"])


def check_container(agent, pod):
    """Directories have the same path on the node and in the pod, and lie where the flags say."""
    (container,) = pod["containers"]
    flags = arguments(container)
    # Go's flags: an unknown one is an error, and -h after those that are known prints the help.
    known = subprocess.run([agent, *container["args"], "-h"], capture_output=True, text=True)
    must("flag provided but not defined" not in known.stderr and "invalid value" not in known.stderr, known.stderr)
    must(known.returncode == 0, f"the agent does not take {container['args']}")
    on_node = {volume["name"]: volume["hostPath"]["path"] for volume in pod["volumes"]}
    for mount in container["volumeMounts"]:
        must(mount["mountPath"] == on_node[mount["name"]], f"{mount} is elsewhere on the node")
    for flag, volume in {"nri-socket": "nri", "host-library": "library", "host-run": "run"}.items():
        must(flags[flag].startswith(on_node[volume] + "/"), f"-{flag} is not in the volume {volume}")
    secure = container["securityContext"]
    must(not secure["privileged"] and not secure["allowPrivilegeEscalation"], "the agent is privileged")
    must(secure["capabilities"] == {"drop": ["ALL"], "add": ["BPF", "PERFMON"]}, "other capabilities")
    must(secure["readOnlyRootFilesystem"], "its root can be written")
    must(container["ports"] == [{"name": "metrics", "containerPort": int(flags["listen"].removeprefix(":"))}], "another port")
    return container, flags


def check(agent, objects):
    daemons = objects["DaemonSet"]
    template = daemons["spec"]["template"]
    must(daemons["spec"]["selector"]["matchLabels"].items() <= template["metadata"]["labels"].items(), "who is selected")
    must(daemons["metadata"]["namespace"] == "there", "it is in another namespace")
    pod = template["spec"]
    must(pod["serviceAccountName"] == objects["ServiceAccount"]["metadata"]["name"], "another account")
    must(objects["ServiceAccount"]["automountServiceAccountToken"] is False, "whoever uses the account has its token")
    must("hostNetwork" not in pod and "hostPID" not in pod and "hostIPC" not in pod, "it has namespaces of the host's")
    return pod, *check_container(agent, pod)


def check_rights(objects):
    """What the agent may at the API server: nothing but to see namespaces."""
    rules = objects["ClusterRole"]["rules"]
    must(rules == [{"apiGroups": [""], "resources": ["namespaces"], "verbs": ["list", "watch"]}], f"rights: {rules}")
    binding = objects["ClusterRoleBinding"]
    account = objects["ServiceAccount"]["metadata"]
    must(binding["roleRef"]["name"] == objects["ClusterRole"]["metadata"]["name"], "another role is bound")
    must(binding["subjects"] == [{"kind": "ServiceAccount", "name": account["name"], "namespace": "there"}], "who is bound")


def main(helm, agent):
    own = rendered(helm, {})
    pod, _, flags = check(agent, own)
    check_rights(own)
    must(flags["namespaces"] == "true" and pod["automountServiceAccountToken"], "it cannot ask for namespaces")

    changed = rendered(helm, CHANGED)
    pod, container, flags = check(agent, changed)
    must(container["image"] == "registry.example:5000/a/ginnel-agent:7" and container["imagePullPolicy"] == "Always", "image")
    must(pod["imagePullSecrets"] == CHANGED["imagePullSecrets"], "secrets")
    must(pod["nodeSelector"] == {"kubernetes.io/os": "linux", "disk": "ssd"}, f"nodes: {pod['nodeSelector']}")
    must(pod["tolerations"] == CHANGED["tolerations"] and pod["affinity"] == CHANGED["affinity"], "which nodes")
    must(flags["groups"] == "3" and flags["broker-settings"] == 'memory = "16M"; pairs = 9', f"settings: {flags}")
    must(flags["runtime-handlers"] == ",other", f"handlers: {flags}")
    must(container["securityContext"]["seLinuxOptions"] == {"type": "spc_t"}, "SELinux")
    must(container["resources"]["limits"] == {"memory": "64Mi"}, "resources")

    bare = rendered(helm, BARE)
    pod, _, flags = check(agent, bare)
    must("ClusterRole" not in bare and "ClusterRoleBinding" not in bare, "rights without namespaces")
    must(flags["namespaces"] == "false" and pod["automountServiceAccountToken"] is False, "a token without namespaces")
    print("the chart: passed")


if __name__ == "__main__":
    main(*sys.argv[1:])
