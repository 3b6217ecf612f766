"""New rows for a fitted model: one rule for frames, arrays and files, in Python and on the command line."""

import shutil
from dataclasses import replace

import numpy as np
import pandas as pd
import polars as pl
import pytest
from support.fitting import fit_table

import shoal
from shoal import Member, ShoalClassifier, ShoalRegressor
from shoal.cli.predict import predict
from shoal.live.options import LiveOptions
from shoal.models.predictions import read_new_rows
from shoal.tables.reading import Reading
from shoal.trackers.find import LogOptions

QUICK = {"strategy": "grid", "cv": 2, "seeds": 1}
MEMBERS = [Member(hidden=4, epochs=5, learning_rate=0.03, batch_size=8)]


def houses(rows=60):
    """Sizes (-1: not known) and colours (unknown: not known), on which the price depends; owners are to be dropped."""
    generator = np.random.default_rng(0)
    size = generator.integers(20, 90, rows).astype(float)
    colour = generator.choice(["red", "blue"], rows).astype(object)
    price = size + 30 * (colour == "red")
    size[::7] = -1
    colour[3::9] = "unknown"
    return pd.DataFrame({
        "owner": generator.choice(["Ann", "Bo"], rows), "size": size, "colour": colour,
        "door": generator.normal(size=rows), "price": price,
    })  # fmt: skip


@pytest.fixture(scope="module")
def fitted():
    """A model fitted in Python on a frame, and the frame."""
    frame = houses()[["size", "colour", "door"]]
    return ShoalRegressor(MEMBERS, **QUICK).fit(frame, houses()["price"]), frame


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A run of the command line in `run`, and its model alone in `alone`."""
    from shoal.cli import search_run
    from shoal.search.options import SearchOptions
    from shoal.search.problem.source import Request
    from shoal.tables.options import RowOptions

    folder = tmp_path_factory.mktemp("rows")
    houses().to_csv(folder / "houses.csv", sep=";", index=False)
    reading = RowOptions(missing=("unknown", "-1.0"), target="price", drop=("owner",))
    options = SearchOptions(task="regression", recipes=2, folds=2, seeds=1, epochs=5, threads=1)
    request = Request(folder / "houses.csv", False, reading, options)
    source, clock = search_run.understand(request, None, folder / "run", False)
    with search_run.folder_of(source, None, folder / "run", False) as run:
        place = search_run.Place(run, clock, LiveOptions(), LogOptions(), keep=True)
        assert search_run.search_in(place, source, None) == 0
    shutil.copytree(folder / "run" / "model", folder / "alone")
    return folder


def test_a_run_folder_is_loaded_as_its_model_is(place):
    model, run = shoal.load(place / "alone"), shoal.load(place / "run")
    frame = houses()
    np.testing.assert_array_equal(model.predict(frame), run.predict(frame))
    assert model.n_features_in_ == 3
    assert model.feature_names_in_.tolist() == ["size", "colour", "door"]
    assert model.feature_names_in_.dtype == object


def test_a_bare_model_reads_files_and_frames_as_the_training_file_was_read(place, capsys):
    """--missing, --drop and the target are known without the run; pytest makes errors of warnings."""
    frame = houses()
    answers = []
    for name, source in (("run", "houses.csv"), ("alone", "houses.csv"), ("alone", "comma.csv")):
        frame[["door", "colour", "size"]].to_csv(place / "comma.csv", index=False)
        predict(place / name, place / source, place / "out.csv")
        answers.append(pd.read_csv(place / "out.csv")["prediction"].tolist())
    assert capsys.readouterr().err == "", "columns that were dropped are no surprise"
    assert answers[0] == answers[1] == answers[2]
    model = shoal.load(place / "alone")
    assert model.predict(frame).tolist() == answers[0]
    cleared = frame.replace({"size": {-1.0: np.nan}, "colour": {"unknown": None}})
    assert model.predict(cleared).tolist() == answers[0]
    assert model.predict(frame[["size", "colour", "door"]].to_numpy()).tolist() == answers[0]
    one = pd.DataFrame({"size": ["unknown"], "colour": ["red"], "door": [0.0]})
    assert model.predict(one) == model.predict(one.assign(size=np.nan))


def test_the_separator_of_the_training_file_helps_where_it_cannot_be_guessed(place):
    model = shoal.load(place / "alone")
    columns = ("owner", "size", "colour", "door", "price")
    assert model.reading_ == Reading(("unknown", "-1.0"), columns, header=True, sep=";", quote='"')
    (place / "at.csv").write_text("size@colour@door\n" + "40@red@0.5\n-1.0@blue@0.25\n" * 5)
    with pytest.raises(ValueError, match="'size', 'colour' and 'door' are missing"):
        read_new_rows(place / "at.csv", model)
    model.reading_ = replace(model.reading_, sep="@")
    assert read_new_rows(place / "at.csv", model)["door"].tolist() == [0.5, 0.25] * 5


def test_a_file_without_names_must_have_as_many_columns(place, call):
    (place / "plain.csv").write_text("\n".join("40,red,0.1,7" for _ in range(9)))
    error = call(place, "predict", "alone", "plain.csv", "--no-header", code=2).stderr
    assert "must have the 5 columns of the training file, or the 3 that the model knows; plain.csv has 4" in error


def test_a_file_without_names_may_have_all_columns_of_a_training_file_with_names(place):
    """Or those that the model knows, alone."""
    model, frame = shoal.load(place / "alone"), houses()
    assert model.reading_.header
    for part in (frame, frame[["size", "colour", "door"]]):
        part.to_csv(place / "bare.csv", index=False, header=False)
        table = read_new_rows(place / "bare.csv", model, header=False)
        assert table.names == ["size", "colour", "door"]
        np.testing.assert_array_equal(model.predict(table), model.predict(frame))


@pytest.mark.parametrize("make", [pd.DataFrame, pl.from_pandas, lambda frame: frame.to_dict("list")])
def test_columns_with_names_come_in_any_order_and_more_are_ignored_with_a_warning(fitted, make):
    model, frame = fitted
    expected = model.predict(frame)
    turned = frame[["door", "size", "colour"]]
    np.testing.assert_array_equal(model.predict(make(turned)), expected)
    with pytest.warns(UserWarning, match="did not have are ignored: 'garden' and 'roof'"):
        found = model.predict(make(turned.assign(garden=1, roof="flat")))
    np.testing.assert_array_equal(found, expected)
    with pytest.raises(ValueError, match="'size' and 'door' are missing; the table has others: 'length'"):
        model.predict(make(frame[["colour"]].assign(length=1.0)))


def test_arrays_have_the_columns_of_the_training_data_in_their_order(fitted):
    """Without a warning, though they have no names."""
    model, frame = fitted
    np.testing.assert_array_equal(model.predict(frame.to_numpy()), model.predict(frame))
    with pytest.raises(ValueError, match="X has 2 features, but ShoalRegressor is expecting 3 features as input"):
        model.predict(frame.to_numpy()[:, :2])


def test_lists_of_rows_with_words_are_taken_by_place_and_lists_of_dicts_by_name(fitted):
    model, frame = fitted
    expected, rows = model.predict(frame), frame.to_numpy(dtype=object).tolist()
    np.testing.assert_array_equal(model.predict(rows), expected)
    np.testing.assert_array_equal(model.predict([tuple(row) for row in rows]), expected)
    records = frame[["door", "colour", "size"]].to_dict("records")
    np.testing.assert_array_equal(model.predict(records), expected)
    one = {"size": 40.0, "colour": "red", "door": 0.5}
    left_out = {name: one[name] for name in ("size", "door")}
    assert model.predict([one, left_out])[1] == model.predict([one | {"colour": None}])[0]
    for bad, words in (
        ([row[:2] for row in rows], "X has 2 features, but ShoalRegressor is expecting 3 features"),
        ([[40.0, "red", 0.5], [1.0, "red"]], "rows must be equally long; got lengths 2, 3"),
        (["red", "blue"], "Expected 2D array, got 1D array"),
        ([one, [40.0, "red", 0.5]], "must hold dicts or lists, not both; got list beside dict"),
        ([{"size": 1.0}], "'colour' and 'door' are missing"),
    ):
        with pytest.raises(ValueError, match=words):
            model.predict(bad)
    np.testing.assert_array_equal(ShoalRegressor(MEMBERS, **QUICK).fit(rows, houses()["price"]).predict(rows), expected)


def test_frames_for_a_model_without_names_are_taken_by_place(fitted):
    X = np.random.default_rng(0).normal(size=(40, 3))
    model = ShoalClassifier(MEMBERS, **QUICK).fit(X, X[:, 0] > 0)
    with pytest.warns(UserWarning, match="X has feature names, but ShoalClassifier was fitted without feature names"):
        found = model.predict_proba(pd.DataFrame(X, columns=["a", "b", "c"]))
    np.testing.assert_array_equal(found, model.predict_proba(X))
    again = ShoalClassifier(MEMBERS, **QUICK).fit(pd.DataFrame(X), X[:, 0] > 0)  # columns 0, 1, 2 are no names
    np.testing.assert_array_equal(again.predict_proba(pd.DataFrame(X)), again.predict_proba(X))


def test_a_dict_of_columns_is_saved_and_loaded(tmp_path):
    columns = houses()[["size", "door"]].to_dict("list")
    model = ShoalRegressor(MEMBERS, **QUICK).fit(columns, houses()["price"])
    shoal.save(model, tmp_path / "model")
    loaded = shoal.load(tmp_path / "model")
    np.testing.assert_array_equal(loaded.predict(columns), model.predict(columns))
    assert loaded.feature_names_in_.tolist() == ["size", "door"]


def test_a_new_fit_forgets_how_the_old_file_was_read(place):
    model = shoal.load(place / "alone")
    model.set_params(recipes=2, seeds=1, epochs=2).fit(np.arange(40.0)[:, None] - 5, np.arange(40.0))
    found = model.predict([[-1.0], [-2.0]])
    assert not np.isnan(found).any()
    assert not hasattr(model, "reading_")
    assert not hasattr(model, "feature_names_in_")


def test_fit_takes_a_list_of_dicts_as_predict_does():
    rows = [{"size": float(k), "colour": "red" if k % 2 else "blue"} for k in range(40)]
    y = [k % 2 for k in range(40)]
    one = ShoalClassifier(recipes=3, seeds=1, epochs=20, cv=2).fit(rows, y)
    columns = {name: [row[name] for row in rows] for name in ("size", "colour")}
    other = ShoalClassifier(recipes=3, seeds=1, epochs=20, cv=2).fit(columns, y)
    assert one.predict_proba(rows).tolist() == other.predict_proba(columns).tolist()
    assert one.score(rows, y) == 1.0


def test_kinds_say_what_a_column_is():
    codes = [float(k % 3) for k in range(60)]
    X, y = {"code": codes, "size": [(k * 7 % 11) / 2 for k in range(60)]}, [int(k % 3 == 1) for k in range(60)]
    guessed = ShoalClassifier(recipes=2, seeds=1, epochs=2, cv=2).fit(X, y)
    told = ShoalClassifier(recipes=2, seeds=1, epochs=2, cv=2, kinds={"code": "category"}).fit(X, y)
    kinds = [{column.name: column.kind for column in model.schema_.columns} for model in (guessed, told)]
    assert kinds == [{"code": "number", "size": "number"}, {"code": "category", "size": "number"}]
    with pytest.raises(ValueError, match="did you mean 'code'"):
        ShoalClassifier(recipes=1, kinds={"cod": "category"}).fit(X, y)


# ---- cells as they are written ----


@pytest.fixture(scope="module")
def codes(tmp_path_factory):
    """A model of zips, which a file without names has beside numbers, and a place for files."""
    from shoal.tables.files import read_table, strings_of

    folder = tmp_path_factory.mktemp("codes")
    rows = [f"{j % 7}.5,{zip_},{j}" for j, zip_ in enumerate(["01001", "1001", "10010"] * 20)]
    (folder / "t.csv").write_text("\n".join(rows) + "\n")
    kinds = {"column 2": "category"}
    table, found = read_table(folder / "t.csv", header=False, strings=strings_of(kinds))
    model = ShoalRegressor(MEMBERS, **QUICK, kinds=kinds)
    reading = Reading((), tuple(table.names), found.header, found.separator)
    return fit_table(model, table.select([0, 1]), table.columns[2], "column 3", reading), folder


@pytest.mark.parametrize("rows", ["1.5,1001,7\n1.5,01001,7\n", "1.5,1001\n1.5,01001\n"])
def test_categories_of_files_without_names_are_read_as_written(codes, rows):
    model, folder = codes
    (folder / "new.csv").write_text(rows)
    table = read_new_rows(folder / "new.csv", model)
    assert table["column 2"].tolist() == ["1001", "01001"]
    one, other = model.predict(table)
    assert one != other


def test_a_file_with_decimal_commas_is_converted_and_said_so(place, capsys, tmp_path):
    model = shoal.load(place / "run")
    frame = houses(5)[["size", "colour", "door"]]
    frame.to_csv(tmp_path / "points.csv", index=False)
    frame.to_csv(tmp_path / "commas.csv", index=False, sep=";", decimal=",")
    expected = model.predict(read_new_rows(tmp_path / "points.csv", model))
    assert capsys.readouterr().err == ""
    table = read_new_rows(tmp_path / "commas.csv", model)
    assert "numbers are read with decimal commas, unlike those of the training data" in capsys.readouterr().err
    assert model.predict(table).tolist() == expected.tolist(), "and it is said once"
    (tmp_path / "both.csv").write_text("size;colour;door\n1,5;red;0,5\n2,5;red;0.25\n")
    with pytest.raises(
        ValueError, match=r"column 'door'.* row 2 \(the first row of data is 1\) has '0.25'.*in one way"
    ):
        model.predict(read_new_rows(tmp_path / "both.csv", model))
