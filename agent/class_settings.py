"""Settings → what decides the content of classes; what could not be written into one is refused at the start."""

import re
from collections.abc import Mapping

from agent.core.class_spec import ClassOptions, ListEdit
from agent.core.label_text import is_label_key, is_label_value
from agent.core.quantity import InvalidQuantityError, parse_quantity
from agent.settings import Settings, SettingsError

_LISTS = ("features", "deviceIDs", "resources")
_PRICES = ("perHour", "spotPerHour", "perMillionTokens")
_TIERS = ("low", "medium", "high")
_FIELDS = (
    *("vendor", "family", "model", "resources"),
    *("discovery.nodeSelector", "discovery.pciVendorID", "discovery.deviceIDs"),
    *("capabilities.memoryGB", "capabilities.computeCapability", "capabilities.memoryBandwidthGBps"),
    *("capabilities.clockSpeedMHz", "capabilities.features"),
    *(f"capabilities.performance.{name}" for name in ("fp32Tflops", "fp16Tflops", "int8Tops", "int4Tops")),
    *(f"cost.{name}" for name in (*_PRICES, "tier")),
    *("integration.kueueResourceFlavor", "integration.volcanoGPUType"),
)
_FEATURE = re.compile(r"[a-z0-9]([a-z0-9._-]*[a-z0-9])?")

Edits = Mapping[str, Mapping[str, Mapping[str, list[str]]]]


def class_options(settings: Settings) -> ClassOptions:
    """Return what decides the content of classes. Raises `SettingsError` for what no class could hold."""
    _check_prices(settings.price_list)
    _check_edits(settings.class_edits)
    _check_selectors(settings.node_selectors)
    _check_fields(settings.excluded_fields)
    return ClassOptions(
        domain=settings.label_domain,
        resources=settings.resources,
        prices=settings.price_list,
        node_selectors=settings.node_selectors,
        features=_list_edits(settings.class_edits, "features"),
        device_ids=_list_edits(settings.class_edits, "deviceIDs"),
        resource_names=_list_edits(settings.class_edits, "resources"),
        kueue_flavors=settings.kueue_flavors,
        volcano_types=settings.volcano_gpu_types,
        excluded_fields=frozenset(settings.excluded_fields),
    )


def _check_prices(prices: Mapping[str, Mapping[str, str]]) -> None:
    for name, entry in prices.items():
        for key, text in entry.items():
            where = f"price_list: {name}: {key}"
            if key == "tier":
                if text not in _TIERS:
                    raise SettingsError(f"{where}: {text!r} is none of {', '.join(_TIERS)}")
            elif key not in _PRICES:
                raise SettingsError(f"{where} is none of {', '.join((*_PRICES, 'tier'))}")
            else:
                _check_price(where, text)


def _check_price(where: str, text: str) -> None:
    try:
        amount = parse_quantity(text)
    except InvalidQuantityError as error:
        raise SettingsError(f"{where}: {error}") from error
    if amount <= 0:
        raise SettingsError(
            f"{where}: {text!r} is not above 0, and 0 would be read as free; leave out what is not known"
        )


def _check_edits(edits: Edits) -> None:
    for name, lists in edits.items():
        for word, edit in lists.items():
            if word not in _LISTS:
                raise SettingsError(f"class_edits: {name}: {word!r} is none of {', '.join(_LISTS)}")
            for key in edit.keys() - {"add", "drop"}:
                raise SettingsError(f"class_edits: {name}: {word}: {key!r} is neither add nor drop")
        for feature in lists.get("features", {}).get("add", ()):
            if not _FEATURE.fullmatch(feature):
                raise SettingsError(
                    f"class_edits: {name}: features: {feature!r} is no feature; write lower case, digits, '-', '_', '.'"
                )


def _check_selectors(selectors: Mapping[str, Mapping[str, str]]) -> None:
    for name, labels in selectors.items():
        if not labels:
            raise SettingsError(f"node_selectors: {name}: an empty selector would select every node")
        for key, value in labels.items():
            if not is_label_key(key) or not is_label_value(value):
                raise SettingsError(f"node_selectors: {name}: {key}={value} is no label that a Node can have")


def _check_fields(paths: tuple[str, ...]) -> None:
    for path in paths:
        if not any(field == path or field.startswith(f"{path}.") for field in _FIELDS):
            raise SettingsError(
                f"excluded_fields: {path!r} is no field that is written; these are: {', '.join(_FIELDS)}"
            )


def _list_edits(edits: Edits, word: str) -> dict[str, ListEdit]:
    return {
        name: ListEdit(add=tuple(edit.get("add", ())), drop=tuple(edit.get("drop", ())))
        for name, lists in edits.items()
        if (edit := lists.get(word, {}))
    }
