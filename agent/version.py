"""What is running: versions of the program, of Python and of the binding."""

import os

DISTRIBUTION = "accelerator-discovery-agent"


def agent_version() -> str:
    """Return the installed distribution's version, `0+unknown` for a bare source tree."""
    return _version(DISTRIBUTION)


def build_labels() -> dict[str, str]:
    """Return the labels of `accelerator_build_info`; the image's build sets `AGENT_REVISION`."""
    import platform  # noqa: PLC0415  # as above

    return {
        "version": agent_version(),
        "revision": os.environ.get("AGENT_REVISION", "unknown"),
        "python": platform.python_version(),
        "nvml_binding": _version("nvidia-ml-py"),
    }


def _version(distribution: str) -> str:
    # Imported where it is asked for: it takes as long as all of a command's own modules.
    from importlib.metadata import PackageNotFoundError, version  # noqa: PLC0415

    try:
        return version(distribution)
    except PackageNotFoundError:
        return "0+unknown"
