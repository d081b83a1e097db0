"""Answers of the fake NVML about multi-instance GPUs."""

import ctypes

from fakes import marshal
from fakes.hardware import Mig, Profile
from fakes.nvml_calls import Answer, Call, MigHandle, PartHandle
from fakes.partitions import gpu_parts, mig_devices

LAST_PROFILE_SLOT = 0x11


def _mode(call: Call) -> None:
    mig = marshal.needed(call.device.mig)
    marshal.write(call.arguments[0], int(mig.enabled))
    marshal.write(call.arguments[1], int(mig.enabled if mig.pending is None else mig.pending))


def _max_count(call: Call) -> None:
    # Success with 0 both where MIG is unknown and where it is off.
    mig = call.device.mig
    marshal.write(call.arguments[0], mig.max_devices if mig is not None and mig.enabled else 0)


def _handle_by_index(call: Call) -> None:
    index, out = call.arguments
    found = [mig for mig in mig_devices(call.device) if mig.index == marshal.integer(index)]
    if not found:
        raise marshal.Refusal(marshal.NOT_FOUND)
    marshal.write_handle(out, call.session.token(MigHandle(call.gpu, found[0])))


def _is_mig(call: Call) -> None:
    marshal.write(call.arguments[0], int(call.mig is not None))


def _parent(call: Call) -> None:
    marshal.write_handle(call.arguments[0], call.session.token(call.gpu))


def _gpu_instance_id(call: Call) -> None:
    marshal.write(call.arguments[0], call.mig.part.id if call.mig else None)


def _compute_instance_id(call: Call) -> None:
    marshal.write(call.arguments[0], call.mig.compute_id if call.mig else None)


def _attributes(call: Call) -> None:
    mig = marshal.needed(call.mig)
    kind = mig.part.profile
    marshal.fill(
        call.arguments[0],
        multiprocessorCount=mig.multiprocessors,
        sharedCopyEngineCount=kind.copy_engines,
        sharedDecoderCount=kind.decoders,
        sharedEncoderCount=kind.encoders,
        sharedJpegCount=kind.jpegs,
        sharedOfaCount=kind.ofas,
        gpuInstanceSliceCount=kind.slices,
        computeInstanceSliceCount=mig.slices,
        memorySizeMB=mig.part.memory.total_bytes >> 20,
    )


def _profile(call: Call) -> Profile:
    """Return the profile that is asked for by slot; profiles are told only while MIG is on."""
    slot = marshal.integer(call.arguments[0])
    if slot > LAST_PROFILE_SLOT:
        raise marshal.Refusal(marshal.INVALID_ARGUMENT)
    mig: Mig | None = call.device.mig
    for profile in mig.profiles if mig is not None and mig.enabled else ():
        if profile.slot == slot:
            return profile
    raise marshal.Refusal(marshal.NOT_SUPPORTED)


def _profile_info(call: Call) -> None:
    profile = _profile(call)
    marshal.fill(
        call.arguments[1],
        id=profile.id,
        isP2pSupported=0,
        sliceCount=profile.slices,
        instanceCount=profile.max_instances,
        multiprocessorCount=profile.multiprocessors,
        copyEngineCount=profile.copy_engines,
        decoderCount=profile.decoders,
        encoderCount=profile.encoders,
        jpegCount=profile.jpegs,
        ofaCount=profile.ofas,
        memorySizeMB=profile.memory_mib,
    )


def _profile_info_v(call: Call) -> None:
    marshal.require_version(call.arguments[1], 2)
    _profile_info(call)
    marshal.fill(call.arguments[1], name=f"MIG {_profile(call).name}".encode())


def _instance_by_id(call: Call) -> None:
    wanted, out = call.arguments
    found = [part for part in gpu_parts(call.device) if part.id == marshal.integer(wanted)]
    if not found:
        raise marshal.Refusal(marshal.NOT_FOUND)
    marshal.write_handle(out, call.session.token(PartHandle(call.gpu, found[0])))


def _instances(call: Call) -> None:
    profile_id, array, count = call.arguments
    parts = [part for part in gpu_parts(call.device) if part.profile.id == marshal.integer(profile_id)]
    for position, part in enumerate(parts):
        token = call.session.token(PartHandle(call.gpu, part))
        ctypes.cast(array, ctypes.POINTER(ctypes.c_void_p))[position] = token
    marshal.write(count, len(parts))


def _instance_info(call: Call) -> None:
    if not isinstance(call.handle, PartHandle):
        raise marshal.Refusal(marshal.INVALID_ARGUMENT)
    part = call.handle.part
    target = marshal.pointee(call.arguments[0])
    target.device = ctypes.cast(call.session.token(call.gpu), type(target.device))
    target.id, target.profileId = part.id, part.profile.id
    target.placement.start, target.placement.size = part.start, part.profile.slices


PARTITION_ANSWERS: dict[str, Answer] = {
    "nvmlDeviceGetMigMode": Answer(_mode),
    "nvmlDeviceGetMaxMigDeviceCount": Answer(_max_count),
    "nvmlDeviceGetMigDeviceHandleByIndex": Answer(_handle_by_index),
    "nvmlDeviceIsMigDeviceHandle": Answer(_is_mig, on="any-device"),
    "nvmlDeviceGetDeviceHandleFromMigDeviceHandle": Answer(_parent, on="mig"),
    "nvmlDeviceGetGpuInstanceId": Answer(_gpu_instance_id, on="mig"),
    "nvmlDeviceGetComputeInstanceId": Answer(_compute_instance_id, on="mig"),
    "nvmlDeviceGetAttributes_v2": Answer(_attributes, on="any-device"),
    "nvmlDeviceGetGpuInstanceProfileInfo": Answer(_profile_info),
    "nvmlDeviceGetGpuInstanceProfileInfoV": Answer(_profile_info_v),
    "nvmlDeviceGetGpuInstanceById": Answer(_instance_by_id),
    "nvmlDeviceGetGpuInstances": Answer(_instances),
    "nvmlGpuInstanceGetInfo": Answer(_instance_info, on="part"),
}
