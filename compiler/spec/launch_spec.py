"""Models of section ``launch`` (program, environment, schedulers) and of the files of a site."""

from typing import Annotated, Literal

from pydantic import Field

from parc.compiler.spec.base import NonNegativeInt, Port, PositiveInt, StrictModel
from parc.compiler.spec.cluster_spec import ClusterSpec
from parc.compiler.spec.units import Seconds

EnvironmentReference = Annotated[
    dict[Literal["from"], Literal["environment"]], Field(min_length=1, max_length=1)
]
"""Value ``{from: environment}``: the job reads the variable from the environment in which it is
submitted, so that no file contains the actual value, such as a secret key."""


class MailSpec(StrictModel):
    """Mail that Slurm sends about the job."""

    user: str | None = None
    """Value of Slurm's option --mail-user. If absent, Slurm writes to the user who submits the
    job."""
    type: str = "END,FAIL"
    """Value of Slurm's option --mail-type: the events that cause a mail, separated by commas."""


class SlurmSpec(StrictModel):
    """Settings of the Slurm batch script that do not follow from the plan."""

    partition: str | None = None
    """Value of Slurm's option --partition."""
    account: str | None = None
    """Value of Slurm's option --account."""
    qos: str | None = None
    """Value of Slurm's option --qos."""
    time_limit: str | None = None
    """Value of Slurm's option --time, in one of Slurm's formats: 1-00:00:00."""
    reservation: str | None = None
    """Value of Slurm's option --reservation."""
    constraint: str | None = None
    """Value of Slurm's option --constraint: features that each host must have."""
    exclude: str | None = None
    """Value of Slurm's option --exclude: hosts that the job must not get, such as n[1-4,7]."""
    nodelist: str | None = None
    """Value of Slurm's option --nodelist: hosts that the job must get. Only for a cluster without
    host names; otherwise the plan determines the hosts."""
    array: str | None = None
    """Value of Slurm's option --array. Each task of the array is a whole job. 1-8%1 runs eight
    jobs one after another, each of which continues from the last checkpoint."""
    comment: str | None = None
    """Value of Slurm's option --comment."""
    mail: MailSpec | None = None
    """Mail that Slurm sends about the job. If absent, Slurm sends none."""
    extra: tuple[str, ...] = ()
    """Further directives of the batch script, each as --option or --option=value. An option that
    the plan or another field determines is an error."""
    container_image: str | None = None
    """Container image in which the program runs: the value of pyxis's option --container-image
    (REGISTRY#IMAGE:TAG, or the path of a file), or the image of apptainer exec. If absent, the
    program runs without a container. A relative launch.program is a path below the working folder
    of the image (pyxis), or below the folder from which the job is submitted (Apptainer)."""
    container_mounts: tuple[str, ...] = ()
    """Folders of the host that the container contains, each as source:destination: values of
    pyxis's option --container-mounts, or of Apptainer's option --bind."""
    container_runtime: Literal["auto", "pyxis", "apptainer"] = "auto"
    """Program that starts the container: pyxis, a plugin of Slurm, or Apptainer (formerly
    Singularity), which must be on the PATH of the shell that submits the job. auto is apptainer if
    container_image ends in .sif or starts with oras:// or library://; otherwise pyxis."""
    requeue: bool = True
    """Put the job into the Slurm queue again after a host failure."""
    signal: Seconds = 300.0
    """Warning time: Slurm signals the job this long before the time limit, so that the job can save
    a checkpoint. Example: 300s."""
    log_dir: str = "logs"
    """Folder of the log files, relative to the folder in which sbatch runs."""


class KubernetesSpec(StrictModel):
    """Settings that the Kubernetes objects need in addition to the plan."""

    image: str | None = None
    """Name of the container image with the framework. Required if emit contains kubernetes."""
    namespace: str | None = None
    """Namespace of the objects. If absent, kubectl uses the namespace of its current context."""
    queue: str | None = None
    """Name of a Kueue queue. If set, Kueue's topology-aware scheduling chooses the racks of the
    pods."""
    rack_label: str = "network.topology.nvidia.com/leaf"
    """Node label whose value is the name of the rack. The default is the label that topograph
    sets."""
    domain_label: str = "network.topology.nvidia.com/accelerator"
    """Node label whose value is the name of the NVLink domain, for domains with several hosts. The
    default is the label that topograph sets."""
    gpu_resource: str | None = None
    """Kubernetes resource name of a GPU. If absent, nvidia.com/gpu or amd.com/gpu, depending on the
    vendor of the GPU."""
    resources: dict[str, str] = Field(default_factory=dict)
    """Additional resources that each pod requests and may not exceed, such as RDMA devices:
    {rdma/hca: "8"}."""
    requests: dict[str, str] = Field(default_factory=dict)
    """Resources that each pod requests without a limit: {cpu: "96", memory: 1Ti}."""
    node_selector: dict[str, str] = Field(default_factory=dict)
    """Labels that a Kubernetes node must have to run a pod of the job. If the cluster has host
    names, PARC also binds each pod to its host."""
    tolerations: tuple[str, ...] = ()
    """Taints of nodes that the pods tolerate, in the syntax of kubectl taint: KEY, KEY:EFFECT or
    KEY=VALUE:EFFECT, such as nvidia.com/gpu=present:NoSchedule."""
    pull_secrets: tuple[str, ...] = ()
    """Names of the Secrets that the nodes use to pull the image from a private registry."""
    run_as_user: NonNegativeInt | None = None
    """User ID of the processes. If absent, the user of the image."""
    run_as_group: NonNegativeInt | None = None
    """Group ID of the processes and of the mounted claims. If absent, the group of the image."""
    claims: dict[str, str] = Field(default_factory=dict)
    """Mapping from the name of each PersistentVolumeClaim to the path at which it is mounted."""
    host_paths: dict[str, str] = Field(default_factory=dict)
    """Mapping from folders of the node, such as libraries of its network, to the paths at which the
    container contains them: {/home/kubernetes/bin/gib: /usr/local/gib}."""
    annotations: dict[str, str] = Field(default_factory=dict)
    """Annotations of the pods, such as the network interfaces that a platform attaches to a pod.
    PARC sets the annotations of Kueue itself."""
    compute_domain: bool | None = None
    """Create a ComputeDomain of NVIDIA's DRA driver, from which each pod claims the IMEX channel
    that NVLink between hosts needs. If absent, true for NVLink domains of several hosts, unless
    launch.env sets NCCL_MNNVL_ENABLE to 0. Set false if the cluster itself adds such a claim to the
    pods."""
    host_network: bool = False
    """Use the network of the host instead of the pod network."""
    privileged: bool = False
    """Run the containers privileged, with access to all devices of the node. Needed for RDMA where
    no device plugin gives the devices to pods (launch.kubernetes.resources)."""
    shared_memory: str = "64Gi"
    """Size of /dev/shm in each pod, as a Kubernetes quantity."""
    secret: str | None = None
    """Name of the Kubernetes Secret that contains the variables which launch.env takes from the
    environment. In the Secret, the key of a variable is its name. If absent, the run name."""
    max_restarts: PositiveInt = 3
    """Maximum number of times that Kubernetes restarts all pods of a training job after a failure.
    A LeaderWorkerSet has no such limit: it restarts pods as often as they fail."""
    startup_minutes: PositiveInt = 60
    """Maximum time, in minutes, that an engine may need to load its checkpoint and compile. After
    this time, Kubernetes restarts an engine that does not respond."""


class LoggingSpec(StrictModel):
    """Loggers that record losses, learning rates and timers of a training job."""

    tensorboard: str | None = None
    """Folder for TensorBoard. If absent, the program writes no such files."""
    wandb: str | None = None
    """Project of Weights & Biases in which the program creates a run with the name of the spec. Set
    launch.env.WANDB_API_KEY to {from: environment}. If absent, the program creates no run."""


class ProfileSpec(StrictModel):
    """Steps that Nsight Systems or another CUDA profiler records."""

    first_step: PositiveInt = 10
    """First recorded step, counted from 1."""
    last_step: PositiveInt = 12
    """Step before which the recording stops."""
    ranks: tuple[NonNegativeInt, ...] = (0,)
    """Ranks that are recorded."""


class LaunchSpec(StrictModel):
    """Program to start, its arguments and environment, and settings of the schedulers."""

    program: str | None = None
    """Script that runs on each rank. If absent, the framework's own script (pretrain_gpt.py or
    pretrain_hybrid.py of Megatron-LM), or a script that PARC emits. Three words select an emitted
    script. decoder (fsdp and deepspeed: PARC's own decoder; accelerate: a Llama of the sizes of the
    spec) and transformers (the model of that library) use a short training loop; trainer
    (accelerate only) trains the transformers model with Hugging Face's Trainer."""
    args: tuple[str, ...] = ()
    """Extra arguments for the framework. An argument that the plan determines is an error."""
    omit: tuple[str, ...] = ()
    """Flags of the plan that the program must not get, such as --manual-gc. Only flags that do not
    affect layout, memory and time can be omitted."""
    logging: LoggingSpec = LoggingSpec.with_defaults()
    """Loggers of a training job. If absent, losses are only on standard output."""
    profile: ProfileSpec | None = None
    """Steps to record with a CUDA profiler: {first_step: 10, last_step: 12, ranks: [0]}. If absent,
    nothing is recorded."""
    env: dict[str, str | EnvironmentReference] = Field(default_factory=dict)
    """Extra environment variables, which override those that PARC sets. For keys and tokens, write
    {from: environment} as the value: the job then takes the value from the environment in which it
    is submitted (on Kubernetes, from a Secret), and no emitted file contains the value."""
    setup: tuple[str, ...] = ()
    """Shell commands that the launch script runs first on each host, one per line, such as module
    load cuda. The script contains them unchanged, and sets environment variables after them."""
    master_port: Port = 29500
    """Rendezvous port of torchrun. In Slurm jobs, the emitted script derives the port from the job
    id instead."""
    network_interface: str | None = None
    """Network interface over which NCCL and Gloo connect at startup. It must have the same name on
    all hosts. If absent, NCCL and Gloo choose an interface."""
    slurm: SlurmSpec = SlurmSpec.with_defaults()
    """Settings of the Slurm batch script."""
    kubernetes: KubernetesSpec = KubernetesSpec.with_defaults()
    """Settings of the Kubernetes objects."""


class FoldersSpec(StrictModel):
    """Folders on file systems that all hosts of the site share."""

    checkpoints: str | None = None
    """Parent of the checkpoint folders. A training spec without job.checkpoint_dir saves to the
    folder NAME below it, where NAME is the name of the run. A path of the spec that starts with
    $checkpoints/ is a path below this folder."""
    data: str | None = None
    """Folder of data sets and models. A path of the spec that starts with $data/ is a path below
    this folder."""
    cache: str | None = None
    """Folder for downloads. HF_HOME is its subfolder huggingface, unless launch.env sets HF_HOME. A
    path of the spec that starts with $cache/ is a path below this folder."""


class SiteSpec(StrictModel):
    """Default settings of all specs that name this site file. A value of the spec takes precedence.

    Mappings of the site and the spec are combined key by key. A list of the spec replaces the
    list of the site, except in launch.setup: commands of the site run before commands of the spec.
    """

    base: str | None = None
    """Site to start from: a preset that `parc catalog sites` lists, or the path of another site
    file, relative to this file. Keys of this file take precedence."""
    source: str | None = None
    """Source of the settings: a document or a page."""
    cluster: ClusterSpec = ClusterSpec.with_defaults()
    """Default values of the spec's section cluster, such as node and fabric. Ignored if the spec
    names a cluster of the catalog. If the spec sets nodes, racks or topology, the hosts of the site
    are ignored; if it sets node, the gpu of the site is ignored."""
    launch: LaunchSpec = LaunchSpec.with_defaults()
    """Default values of the spec's section launch, such as slurm.partition, env and setup. A job
    without container_image ignores slurm.container_mounts and slurm.container_runtime of the
    site."""
    versions: dict[str, str] = Field(default_factory=dict)
    """Default values of the spec's section versions, such as {slurm: "24.11"}."""
    modules: tuple[str, ...] = ()
    """Environment modules that each host loads before the commands of launch.setup. Ignored if
    launch.slurm.container_image is set, because an image contains its software."""
    folders: FoldersSpec = FoldersSpec.with_defaults()
    """Folders on shared file systems."""
