#!/usr/bin/env python3
"""Packs a root directory as an image: archive.py ROOT FILE NAME MACHINE [COMMAND].

The file is an OCI layout (image-spec, image-layout.md) in a tar, with one layer. The same files make
the same image: times and owners are left out.
"""

import hashlib
import io
import json
import pathlib
import sys
import tarfile

ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}


def plain(entry):
    entry.mtime = entry.uid = entry.gid = 0
    entry.uname = entry.gname = ""
    return entry


def layer(root):
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for path in sorted(root.rglob("*")):
            tar.add(path, str(path.relative_to(root)), recursive=False, filter=plain)
    return buffer.getvalue()


def main(root, file, name, machine, command="/usr/bin/ginnel-agent"):
    files = {}

    def blob(data, kind):
        digest = hashlib.sha256(data).hexdigest()
        files[f"blobs/sha256/{digest}"] = data
        return {"mediaType": f"application/vnd.oci.image.{kind}", "digest": f"sha256:{digest}", "size": len(data)}

    content = blob(layer(pathlib.Path(root)), "layer.v1.tar")
    platform = {"architecture": ARCHITECTURES[machine], "os": "linux"}
    config = {
        **platform,
        "config": {"Entrypoint": command.split(), "Env": ["PATH=/usr/bin"]},
        "rootfs": {"type": "layers", "diff_ids": [content["digest"]]},
    }
    manifest = {
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": blob(json.dumps(config).encode(), "config.v1+json"),
        "layers": [content],
    }
    # containerd goes by the first name, others by the second (annotations.md).
    names = {"io.containerd.image.name": name, "org.opencontainers.image.ref.name": name.rpartition(":")[2]}
    described = blob(json.dumps(manifest).encode(), "manifest.v1+json")
    index = {"schemaVersion": 2, "manifests": [{**described, "platform": platform, "annotations": names}]}
    files["index.json"] = json.dumps(index).encode()
    files["oci-layout"] = b'{"imageLayoutVersion": "1.0.0"}'
    with tarfile.open(file, "w") as tar:
        for path, data in sorted(files.items()):
            entry = tarfile.TarInfo(path)
            entry.size = len(data)
            tar.addfile(entry, io.BytesIO(data))


if __name__ == "__main__":
    main(*sys.argv[1:])
