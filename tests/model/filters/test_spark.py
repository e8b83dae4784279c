"""The filter as a Spark column: types, names, NaN, sizes. Random filters are in test_against_other_engines."""

import subprocess
import sys
from typing import Any

import pytest

from tidings import ConfigurationError
from tidings.model.filters import Filter
from tidings.model.filters._spark import spark_sql


def test_the_text_for_spark() -> None:
    from pyspark.sql.types import LongType, StringType, StructField, StructType

    schema = StructType([StructField("a.b", LongType()), StructField("s`", StringType())])
    sql = spark_sql(Filter.parse("a.b > 1.5 AND \"s`\" LIKE 'x!_%' AND missing = 1").condition, schema)
    assert sql == ("`a.b` > 1L AND CAST(`s``` AS STRING) LIKE 'x!!_%' ESCAPE '!' AND CAST(NULL AS BOOLEAN)")


def test_a_name_that_spark_would_substitute_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="substitute"):
        spark_sql(Filter.parse('"${env:HOME}" = 1').condition)


def test_without_pyspark_the_error_names_the_install() -> None:
    program = (
        "import sys; sys.modules['pyspark'] = None; sys.modules['pyspark.sql'] = None\n"
        "from tidings.model.filters import Filter\n"
        "try: Filter.parse('a = 1').to_spark()\n"
        "except Exception as error: print(type(error).__name__, error)\n"
    )
    output = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert output.startswith("ConfigurationError")
    assert "pip install 'tidings[spark]'" in output


def test_a_filter_imports_no_spark() -> None:
    program = "import sys, tidings.model.filters as f; f.Filter.parse('a = 1').clauses; print('pyspark' in sys.modules)"
    output = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert output.strip() == "False"


def truths(frame: Any, *texts: str, typed: bool = True) -> list[list[bool | None]]:
    """For each filter, its truth per row."""
    columns = [
        Filter.parse(text).to_spark(frame.schema if typed else None).alias(f"c{i}") for i, text in enumerate(texts)
    ]
    return [list(column) for column in zip(*frame.select(columns).collect(), strict=True)]


@pytest.mark.spark
@pytest.mark.parametrize("typed", [True, False], ids=["schema", "typeof"])
def test_columns_of_every_type(spark: Any, typed: bool) -> None:
    frame = spark.sql(
        """SELECT CAST(1 AS TINYINT) AS tiny, CAST(1 AS SMALLINT) AS small, 1 AS whole, 1L AS big,
                  CAST(1 AS FLOAT) AS single, 1D AS double, CAST(1.50 AS DECIMAL(38, 10)) AS decimal,
                  CAST(1 AS DECIMAL(5, 0)) AS decimal0, '1' AS text, true AS flag, DATE'2024-01-01' AS day,
                  TIMESTAMP'2024-01-01 00:00:00' AS at, X'31' AS bytes, array(1) AS list, struct(1 AS x) AS record,
                  map(1, 1) AS pairs, INTERVAL 1 DAY AS span, NULL AS nothing, 'A' COLLATE UTF8_LCASE AS folded"""
    )
    shapes = ["{0} = 1", "{0} + 1 = 2", "{0} = '1'", "{0} = TRUE", "{0} IS NULL", "{0} = {0}"]
    got = truths(frame, *(shape.format(name) for name in frame.columns for shape in shapes), typed=typed)
    for name in frame.columns:
        number = name in ("tiny", "small", "whole", "big", "single", "double", "decimal0") or None
        one = False if name == "decimal" else number
        text = {"text": True, "folded": False}.get(name)
        comparable = number or name in ("decimal", "text", "flag", "folded") or None
        expected = [one, one, text, True if name == "flag" else None, name == "nothing", comparable]
        assert [truth for (truth,) in got[: len(shapes)]] == expected, name
        del got[: len(shapes)]
    assert truths(frame, "folded = 'a'", "decimal = 1.5", "flag < flag", typed=typed) == [[False], [True], [None]]


@pytest.mark.spark
@pytest.mark.parametrize("typed", [True, False], ids=["schema", "typeof"])
def test_nan_is_null_and_infinity_is_a_number(spark: Any, typed: bool) -> None:
    frame = spark.createDataFrame([(float("nan"),), (float("inf"),), (None,), (1.0,)], "a double")
    assert truths(frame, "a > 1", "NOT a > 1", "a IS NULL", "a = a", typed=typed) == [
        [None, True, None, False],
        [None, False, None, True],
        [True, False, True, False],
        [None, True, None, True],
    ]


@pytest.mark.spark
def test_whole_numbers_stay_exact(spark: Any) -> None:
    frame = spark.createDataFrame(
        [(2**53 + 1, float(2**53)), (2**63 - 1, 2.0**63), (-(2**63), -(2.0**63))], "n long, d double"
    )
    assert truths(
        frame, "n > 9007199254740992", "n = 9007199254740992.0", "n > d", "n = d", "d >= 9223372036854775807"
    ) == [
        [True, True, False],
        [False, False, False],
        [True, False, False],
        [False, False, True],
        [False, True, False],
    ]


@pytest.mark.spark
def test_text_that_settings_could_change_is_read_as_written(spark: Any) -> None:
    values = ["a\\nb", "it's", "${spark.app.name}", "100%", 'say "x"', "`", "\n"]
    frame = spark.createDataFrame([(value,) for value in values], "s string")
    for literals in ("true", "false"):
        spark.conf.set("spark.sql.parser.escapedStringLiterals", literals)
        try:
            for index, value in enumerate(values):
                quoted = value.replace("'", "''")
                pattern = quoted.replace("%", "é%")
                equal, like = truths(frame, f"s = '{quoted}'", f"s LIKE '{pattern}' ESCAPE 'é'")
                assert equal == like == [i == index for i in range(len(values))]
        finally:
            spark.conf.unset("spark.sql.parser.escapedStringLiterals")


@pytest.mark.spark
def test_columns_with_dots_and_backticks(spark: Any) -> None:
    frame = spark.createDataFrame([(1, 2)], "`trade.volume` int, `odd ``name` int")
    assert truths(frame, 'trade.volume = 1 AND "odd `name" = 2', typed=True) == [[True]]
    assert truths(frame, 'trade.volume = 1 AND "odd `name" = 2', typed=False) == [[True]]


@pytest.mark.spark
def test_long_chains_and_lists_and_deep_nesting(spark: Any) -> None:
    frame = spark.createDataFrame([(5, 0.0, "x"), (-5, -0.0, None)], "n int, d double, s string")
    equalities = " OR ".join(f"n = {i}" for i in range(5_000))
    ranges = " OR ".join(f"(n > {i} AND n < {i + 2})" for i in range(100))
    listed = "d IN (" + ", ".join(map(str, range(5_000))) + ")"
    nested = "NOT (n = 1 AND " * 60 + "n = 5" + ")" * 60
    signs = "n > " + "-(1 + " * 60 + "n" + ")" * 60
    texts = [equalities, ranges, listed, nested, signs]
    rows = [row.asDict() for row in frame.collect()]
    expected = [[Filter.parse(text).evaluate(row) for row in rows] for text in texts]
    assert truths(frame, *texts) == expected
