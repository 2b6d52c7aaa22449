"""Convert a measured quantity between units, with the checks that an instrument technician would make.

This is the file that `belljar bench` measures the check of a tool with: 300 lines of the kind that people write.
"""

from __future__ import annotations

import datetime
import math
import statistics
from dataclasses import dataclass, field
from typing import Callable


class ConversionError(ValueError):
    """The quantity cannot be converted, and why."""


@dataclass(frozen=True)
class Unit:
    symbol: str
    name: str
    dimension: str
    factor: float
    offset: float = 0.0
    aliases: tuple[str, ...] = field(default=())

    def to_base(self, value: float) -> float:
        return (value + self.offset) * self.factor

    def from_base(self, value: float) -> float:
        return value / self.factor - self.offset


UNITS: dict[str, Unit] = {}


def register(symbol: str, name: str, dimension: str, factor: float, offset: float = 0.0, *aliases: str) -> None:
    unit = Unit(symbol, name, dimension, factor, offset, aliases)
    for key in {symbol, name, *aliases}:
        if key in UNITS:
            raise ConversionError(f"{key!r} is registered twice")
        UNITS[key] = unit


register("m", "metre", "length", 1.0, 0.0)
register("km", "kilometre", "length", 1000.0, 0.0)
register("cm", "centimetre", "length", 0.01, 0.0)
register("mm", "millimetre", "length", 0.001, 0.0)
register("in", "inch", "length", 0.0254, 0.0)
register("ft", "foot", "length", 0.3048, 0.0)
register("yd", "yard", "length", 0.9144, 0.0)
register("mi", "mile", "length", 1609.344, 0.0)
register("nmi", "nautical mile", "length", 1852.0, 0.0)
register("g", "gram", "mass", 0.001, 0.0)
register("kg", "kilogram", "mass", 1.0, 0.0)
register("t", "tonne", "mass", 1000.0, 0.0)
register("lb", "pound", "mass", 0.45359237, 0.0)
register("oz", "ounce", "mass", 0.028349523125, 0.0)
register("s", "second", "time", 1.0, 0.0)
register("min", "minute", "time", 60.0, 0.0)
register("h", "hour", "time", 3600.0, 0.0)
register("d", "day", "time", 86400.0, 0.0)
register("K", "kelvin", "temperature", 1.0, 0.0)
register("degC", "celsius", "temperature", 1.0, 273.15)
register("degF", "fahrenheit", "temperature", 0.5555555555555556, 459.67)
register("Pa", "pascal", "pressure", 1.0, 0.0)
register("kPa", "kilopascal", "pressure", 1000.0, 0.0)
register("MPa", "megapascal", "pressure", 1000000.0, 0.0)
register("bar", "bar", "pressure", 100000.0, 0.0)
register("psi", "pound per square inch", "pressure", 6894.757293168, 0.0)
register("atm", "atmosphere", "pressure", 101325.0, 0.0)
register("J", "joule", "energy", 1.0, 0.0)
register("kJ", "kilojoule", "energy", 1000.0, 0.0)
register("kWh", "kilowatt hour", "energy", 3600000.0, 0.0)
register("cal", "calorie", "energy", 4.184, 0.0)
register("BTU", "british thermal unit", "energy", 1055.05585262, 0.0)
register("W", "watt", "power", 1.0, 0.0)
register("kW", "kilowatt", "power", 1000.0, 0.0)
register("hp", "horsepower", "power", 745.69987158227, 0.0)
register("L", "litre", "volume", 0.001, 0.0)
register("m3", "cubic metre", "volume", 1.0, 0.0)
register("gal", "gallon", "volume", 0.003785411784, 0.0)
register("bbl", "barrel", "volume", 0.158987294928, 0.0)
register("um", "micrometre", "length", 1e-06, 0.0)
register("nm", "nanometre", "length", 1e-09, 0.0)
register("au", "astronomical unit", "length", 149597870700.0, 0.0)
register("ly", "light year", "length", 9460730472580800.0, 0.0)
register("mg", "milligram", "mass", 1e-06, 0.0)
register("ug", "microgram", "mass", 1e-09, 0.0)
register("st", "stone", "mass", 6.35029318, 0.0)
register("ms", "millisecond", "time", 0.001, 0.0)
register("us", "microsecond", "time", 1e-06, 0.0)
register("wk", "week", "time", 604800.0, 0.0)
register("yr", "julian year", "time", 31557600.0, 0.0)
register("mbar", "millibar", "pressure", 100.0, 0.0)
register("mmHg", "millimetre of mercury", "pressure", 133.322387415, 0.0)
register("GPa", "gigapascal", "pressure", 1000000000.0, 0.0)
register("MJ", "megajoule", "energy", 1000000.0, 0.0)
register("GJ", "gigajoule", "energy", 1000000000.0, 0.0)
register("eV", "electronvolt", "energy", 1.602176634e-19, 0.0)
register("Wh", "watt hour", "energy", 3600.0, 0.0)
register("MWh", "megawatt hour", "energy", 3600000000.0, 0.0)
register("kcal", "kilocalorie", "energy", 4184.0, 0.0)
register("MW", "megawatt", "power", 1000000.0, 0.0)
register("GW", "gigawatt", "power", 1000000000.0, 0.0)
register("mW", "milliwatt", "power", 0.001, 0.0)
register("mL", "millilitre", "volume", 1e-06, 0.0)
register("ft3", "cubic foot", "volume", 0.028316846592, 0.0)
register("qt", "quart", "volume", 0.000946352946, 0.0)
register("pt", "pint", "volume", 0.000473176473, 0.0)
register("cup", "cup", "volume", 0.0002365882365, 0.0)
register("hL", "hectolitre", "volume", 0.1, 0.0)
register("rank", "rankine", "temperature", 0.5555555555555556, 0.0)


def find(name: str) -> Unit:
    """The unit of that name, by its symbol first."""
    unit = UNITS.get(name) or UNITS.get(name.strip().lower())
    if unit is None:
        close = sorted(key for key in UNITS if key.lower().startswith(name[:1].lower()))
        raise ConversionError(f"there is no unit {name!r}; did you mean one of {', '.join(close[:5])}?")
    return unit


def check_length(value: float) -> float:
    """A length cannot be less than zero."""
    if math.isnan(value):
        raise ConversionError("a length cannot be nothing")
    if value < 0:
        raise ConversionError(f"a length cannot be less than zero, and this is {value:g}")
    return value


def check_mass(value: float) -> float:
    """A mass cannot be less than zero."""
    if math.isnan(value):
        raise ConversionError("a mass cannot be nothing")
    if value < 0:
        raise ConversionError(f"a mass cannot be less than zero, and this is {value:g}")
    return value


def check_time(value: float) -> float:
    """A duration cannot be less than zero."""
    if math.isnan(value):
        raise ConversionError("a duration cannot be nothing")
    if value < 0:
        raise ConversionError(f"a duration cannot be less than zero, and this is {value:g}")
    return value


def check_temperature(value: float) -> float:
    """A temperature in kelvin cannot be less than zero."""
    if math.isnan(value):
        raise ConversionError("a temperature in kelvin cannot be nothing")
    if value < 0:
        raise ConversionError(f"a temperature in kelvin cannot be less than zero, and this is {value:g}")
    return value


def check_pressure(value: float) -> float:
    """An absolute pressure cannot be less than zero."""
    if math.isnan(value):
        raise ConversionError("an absolute pressure cannot be nothing")
    if value < 0:
        raise ConversionError(f"an absolute pressure cannot be less than zero, and this is {value:g}")
    return value


def check_energy(value: float) -> float:
    """An energy cannot be infinite."""
    if math.isnan(value):
        raise ConversionError("an energy cannot be nothing")
    if math.isinf(value):
        raise ConversionError(f"an energy cannot be infinite, and this is {value:g}")
    return value


def check_power(value: float) -> float:
    """A power cannot be infinite."""
    if math.isnan(value):
        raise ConversionError("a power cannot be nothing")
    if math.isinf(value):
        raise ConversionError(f"a power cannot be infinite, and this is {value:g}")
    return value


def check_volume(value: float) -> float:
    """A volume cannot be less than zero."""
    if math.isnan(value):
        raise ConversionError("a volume cannot be nothing")
    if value < 0:
        raise ConversionError(f"a volume cannot be less than zero, and this is {value:g}")
    return value


CHECKS: dict[str, Callable[[float], float]] = {
    "length": check_length,
    "mass": check_mass,
    "time": check_time,
    "temperature": check_temperature,
    "pressure": check_pressure,
    "energy": check_energy,
    "power": check_power,
    "volume": check_volume,
}


def convert(value: float, source: Unit, target: Unit) -> float:
    if source.dimension != target.dimension:
        raise ConversionError(
            f"{source.name} is {source.dimension} and {target.name} is {target.dimension}: they cannot be converted"
        )
    base = CHECKS[source.dimension](source.to_base(value))
    return target.from_base(base)


def significant(value: float, digits: int) -> float:
    if value == 0 or not math.isfinite(value):
        return value
    return round(value, digits - int(math.floor(math.log10(abs(value)))) - 1)


def summary(values: list[float]) -> dict:
    """What a person looks at first."""
    if not values:
        return {"count": 0}
    result = {
        "count": len(values),
        "least": min(values),
        "most": max(values),
        "mean": statistics.fmean(values),
    }
    if len(values) > 1:
        result["deviation"] = statistics.stdev(values)
    return result


def outliers(values: list[float], limit: float) -> list[int]:
    if len(values) < 3:
        return []
    middle, spread = statistics.median(values), statistics.pstdev(values)
    if spread == 0:
        return []
    return [index for index, value in enumerate(values) if abs(value - middle) / spread > limit]


def handle(
    values: list[float],
    unit: str,
    target: str,
    measured_at: list[datetime.datetime],
    digits: int = 6,
    outlier_limit: float = 3.0,
    drop_outliers: bool = False,
) -> dict:
    """
    Convert a series of measurements to another unit and describe it.

    Args:
        values (list[float]): The measurements, in the order in which they were taken.
        unit (str): The unit they were taken in, for example "psi" or "degC".
        target (str): The unit wanted, of the same kind, for example "kPa".
        measured_at (list[datetime.datetime]): When each was taken, with an offset;
            an empty list if that is not known.
        digits (int): Significant digits of the answer (default=6).
        outlier_limit (float): How many deviations from the median make an outlier (default=3.0).
        drop_outliers (bool): Whether outliers are left out of the summary (default=False).

    Returns:
        dict: The converted values, a summary of them, and which of them stand out.

    Raises:
        ConversionError: If the units are unknown or of different kinds.
    """
    if measured_at and len(measured_at) != len(values):
        raise ConversionError(f"{len(values)} values were measured at {len(measured_at)} times")
    source, wanted = find(unit), find(target)
    converted = [significant(convert(value, source, wanted), digits) for value in values]
    odd = outliers(converted, outlier_limit)
    kept = [value for index, value in enumerate(converted) if not (drop_outliers and index in odd)]
    answer = {"unit": wanted.symbol, "values": converted, "summary": summary(kept), "outliers": odd}
    if measured_at:
        answer["from"] = min(measured_at).isoformat()
        answer["until"] = max(measured_at).isoformat()
    return answer


def test():
    assert handle([0.0, 100.0], "degC", "K", [])["values"] == [273.15, 373.15]
    assert handle([1.0], "mi", "km", [])["values"] == [1.60934]
    now = datetime.datetime(2024, 5, 6, tzinfo=datetime.timezone.utc)
    assert handle([1.0], "bar", "kPa", [now])["from"] == "2024-05-06T00:00:00+00:00"
    try:
        handle([1.0], "kg", "m", [])
        assert False, "Should have raised ConversionError"
    except ConversionError as error:
        assert "mass" in str(error)
    return handle([1.0, 1.1, 0.9, 25.0], "psi", "bar", [], outlier_limit=1.5)
