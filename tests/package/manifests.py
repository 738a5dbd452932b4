"""What manifests of Kubernetes, JobSet, Kubeflow Trainer and tasks of SkyPilot may have: the fields of their APIs that
examples/jobs uses, so that a misspelt one or one at a wrong place is found. Their own schemas are not to be had
without a network.

A shape is a type, a set of values, [shape] for a list, or a dict from fields to shapes; "name!" has to be there, and
None as a field stands for any name.
"""

TEXT, NUMBER = str, int
QUANTITY = str
META = {"name!": TEXT, "labels": {None: TEXT}}
ENV = [{"name!": TEXT, "value": TEXT, "valueFrom": {"fieldRef": {"fieldPath!": TEXT},
                                                    "secretKeyRef": {"name!": TEXT, "key!": TEXT}}}]
RESOURCES = {"requests": {None: QUANTITY}, "limits": {None: QUANTITY}}
CONTAINER = {"name!": TEXT, "image!": TEXT, "command": [TEXT], "args": [TEXT], "env": ENV, "resources": RESOURCES,
             "volumeMounts": [{"name!": TEXT, "mountPath!": TEXT}]}
VOLUME = {"name!": TEXT, "persistentVolumeClaim": {"claimName!": TEXT},
          "emptyDir": {"medium": {"Memory"}, "sizeLimit": QUANTITY}}
TOLERATION = {"key": TEXT, "operator": {"Exists", "Equal"}, "effect": {"NoExecute", "NoSchedule"},
              "tolerationSeconds": NUMBER}
POD = {"restartPolicy": {"Never", "OnFailure"}, "subdomain": TEXT, "terminationGracePeriodSeconds": NUMBER,
       "securityContext": {"runAsNonRoot": bool, "fsGroup": NUMBER}, "tolerations": [TOLERATION],
       "containers!": [CONTAINER], "volumes": [VOLUME]}
RULE = {"action!": {"FailJob", "Ignore", "Count", "FailIndex"},
        "onExitCodes": {"containerName": TEXT, "operator!": {"In", "NotIn"}, "values!": [NUMBER]},
        "onPodConditions": [{"type!": TEXT, "status": {"True", "False", "Unknown"}}]}
JOB = {"completionMode": {"Indexed", "NonIndexed"}, "completions": NUMBER, "parallelism": NUMBER,
       "backoffLimit": NUMBER, "podFailurePolicy": {"rules!": [RULE]},
       "template!": {"metadata": {"labels": {None: TEXT}}, "spec!": POD}}
JOBSET = {"failurePolicy": {"maxRestarts": NUMBER, "rules": [{
              "action!": {"FailJobSet", "RestartJobSet", "RestartJobSetAndIgnoreMaxRestarts"},
              "onJobFailureReasons": [{"BackoffLimitExceeded", "DeadlineExceeded", "PodFailurePolicy"}]}]},
          "replicatedJobs!": [{"name!": TEXT, "replicas": NUMBER,
                               "template!": {"metadata": {"labels": {None: TEXT}}, "spec!": JOB}}]}


def manifest(version, kind, spec):
    return {"apiVersion!": {version}, "kind!": {kind}, "metadata!": META, "spec!": spec}


KINDS = {
    "Service": manifest("v1", "Service", {"clusterIP": {"None"}, "publishNotReadyAddresses": bool,
                                          "selector!": {None: TEXT}}),
    "Job": manifest("batch/v1", "Job", JOB),
    "JobSet": manifest("jobset.x-k8s.io/v1alpha2", "JobSet", JOBSET),
    "TrainingRuntime": manifest("trainer.kubeflow.org/v1alpha1", "TrainingRuntime", {
        "mlPolicy": {"numNodes": NUMBER, "torch": {}}, "template!": {"spec!": JOBSET}}),
    "TrainJob": manifest("trainer.kubeflow.org/v1alpha1", "TrainJob", {
        "runtimeRef!": {"apiGroup": {"trainer.kubeflow.org"}, "kind": {"TrainingRuntime", "ClusterTrainingRuntime"},
                        "name!": TEXT},
        "trainer": {"image": TEXT, "command": [TEXT], "args": [TEXT], "env": ENV, "numNodes": NUMBER,
                    "numProcPerNode": NUMBER, "resourcesPerNode": RESOURCES}}),
}
SKYPILOT = {
    "name": TEXT, "num_nodes": NUMBER, "workdir": TEXT, "setup": TEXT, "run!": TEXT, "envs": {None: TEXT},
    "secrets": {None: type(None)},
    "resources!": {"cpus": TEXT, "memory": TEXT, "use_spot": bool, "job_recovery": {
        "strategy!": {"FAILOVER", "EAGER_NEXT_REGION"}, "max_restarts_on_errors": NUMBER}},
    "file_mounts": {None: (TEXT, {"name!": TEXT, "mode": {"MOUNT", "COPY", "MOUNT_CACHED"}})},
}
CONDA = {
    "schema_version!": {1}, "context": {None: TEXT}, "package!": {"name!": TEXT, "version!": TEXT},
    "source!": {"path!": TEXT, "use_gitignore": bool},
    "build!": {"number": NUMBER, "skip": TEXT, "script!": [TEXT]},
    "requirements!": {"build": [TEXT], "host": [TEXT], "run": [TEXT], "run_constraints": [TEXT]},
    "tests": [({"script!": [TEXT], "requirements": {"run": [TEXT]}}, {"python!": {"imports!": [TEXT]}})],
    "about": {"summary": TEXT, "license": TEXT, "license_file": TEXT},
}


def faults(value, shape, at=""):
    """A sentence for each thing in `value` that `shape` does not have."""
    if isinstance(shape, tuple):
        found = [list(faults(value, one, at)) for one in shape]
        return [] if [] in found else found[-1]
    if isinstance(shape, type):
        good = isinstance(value, shape) and not (shape is int and isinstance(value, bool))
        return [] if good else [f"{at}: {value!r} is no {shape.__name__}"]
    if isinstance(shape, (set, frozenset)):
        return [] if value in shape else [f"{at}: {value!r} is none of {sorted(map(str, shape))}"]
    if isinstance(shape, list):
        if not isinstance(value, list):
            return [f"{at}: {value!r} is no list"]
        return [fault for k, one in enumerate(value) for fault in faults(one, shape[0], f"{at}[{k}]")]
    if not isinstance(value, dict):
        return [f"{at}: {value!r} has no fields"]
    fields = {name and name.rstrip("!"): inner for name, inner in shape.items()}
    found = [f"{at}.{name[:-1]}: is missing" for name in shape
             if name and name.endswith("!") and name[:-1] not in value]
    for name, inner in value.items():
        if name in fields or None in fields:
            found += faults(inner, fields.get(name, fields.get(None)), f"{at}.{name}")
        else:
            found.append(f"{at}.{name}: is no field here")
    return found
