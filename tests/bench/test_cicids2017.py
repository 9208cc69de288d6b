"""CIC-IDS2017: 77 statistics under the same names from either release, and the tasks made of them."""

from __future__ import annotations

import gzip
import math
from pathlib import Path

import polars as pl
import pytest
from tefm_bench.datasets.cicids2017 import CORRECTED, FIELDS, cicids2017

from tefm.base.errors import InputError, SettingsError
from tefm.tables.vectorise import Vectoriser

DATA = Path(__file__).parents[1] / "data" / "cicids2017"
DDOS = DATA / "Friday-WorkingHours-Afternoon-DDos.pcap_ISCX.csv"  # the official header, with its blanks
PORTSCAN = DATA / "Friday-WorkingHours-Afternoon-PortScan.csv"  # the names cleaned, the label as `labels`
IMPROVED = DATA / "corrected.parquet"
ALL = {DDOS: "ddos", PORTSCAN: "portscan", IMPROVED: "attack"}
NAMES = [field.name for field in FIELDS]


def lines(path):
    return path.read_text().splitlines()


def labelled(tmp_path, labels, name=DDOS.name):
    """Flows of the official file under other labels, cycled."""
    header, *rows = lines(DDOS)
    rows = [row.rpartition(",")[0] + "," + label for row, label in zip(rows * 9, labels, strict=False)]
    path = tmp_path / name
    path.write_text("\n".join([header, *rows]) + "\n")
    return path


# ---- the 77 statistics --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ALL, ids=lambda path: path.stem)
def test_every_release_gives_the_same_77_statistics_as_numbers(path):
    data = cicids2017(path, task=ALL[path])
    assert data.frame.columns == [*NAMES, "label"]
    assert len(data.schema.fields) == 77 and {field.kind for field in data.schema.fields} == {"number"}
    assert all(data.frame[name].dtype == pl.Float64 for name in NAMES)
    slots = Vectoriser.fit(data.frame, data.schema.with_buckets(5)).transform(data.frame)
    assert slots.shape == (data.frame.height, 77) and slots.max() == 5


def test_the_statistics_are_all_official_columns_but_the_duplicate():
    official = [name.strip() for name in lines(DDOS)[0].split(",")]
    assert official.count("Fwd Header Length") == 2
    assert sorted(NAMES) == sorted(set(official) - {"Label"})


def test_the_corrected_names_map_one_to_one():
    columns = pl.read_parquet(IMPROVED).columns
    used = [CORRECTED.get(name, name) for name in NAMES]
    assert len(set(used)) == 77 and set(used) <= set(columns)
    assert set(columns) - set(used) == {
        "id", "Flow ID", "Src IP", "Src Port", "Dst IP", "Protocol", "Timestamp", "Label", "Attempted Category",
        "Fwd RST Flags", "Bwd RST Flags", "ICMP Code", "ICMP Type", "Total TCP Flow Time",
    }  # fmt: skip


@pytest.mark.parametrize("path", ALL, ids=lambda path: path.stem)
def test_statistics_that_belong_together_agree(path):
    frame = cicids2017(path, task=ALL[path]).frame
    assert frame["Avg Fwd Segment Size"].to_list() == pytest.approx(frame["Fwd Packet Length Mean"].to_list())
    assert frame["Avg Bwd Segment Size"].to_list() == pytest.approx(frame["Bwd Packet Length Mean"].to_list())
    assert (frame["Min Packet Length"] <= frame["Max Packet Length"]).all()
    assert frame["Packet Length Variance"].to_list() == pytest.approx((frame["Packet Length Std"] ** 2).to_list())


def test_every_statistic_has_a_group_for_people():
    groups = {field.group for field in FIELDS}
    assert groups == {
        "Destination", "Volume", "Rates", "Packet lengths", "Timing", "Flags", "Bulk transfers", "Windows",
    }  # fmt: skip
    assert "_" not in "".join(field.display_name for field in FIELDS)


def test_infinity_and_nan_are_absent_and_their_rows_stay():
    data = cicids2017(DDOS)
    assert data.frame.height == len(lines(DDOS)) - 1 == 60
    odd = [i for i, line in enumerate(lines(DDOS)[1:]) if "Infinity" in line]
    assert len(odd) == 3
    vectoriser = Vectoriser.fit(data.frame, data.schema)
    slots = vectoriser.transform(data.frame)
    rates = [NAMES.index("Flow Bytes/s"), NAMES.index("Flow Packets/s")]
    assert (slots[odd][:, rates] == 0).all()
    assert (slots == 0).sum() == len(odd) * len(rates)
    assert all(math.isfinite(high) for mapper in vectoriser.mappers for high in mapper.high)


# ---- the tasks ----------------------------------------------------------------------------------------------------


def test_portscan_keeps_benign_flows_and_that_attack_in_order():
    data = cicids2017(DATA, task="portscan")
    raw = [line.split(",") for line in lines(PORTSCAN)[1:]]
    assert data.frame["Destination Port"].to_list() == [float(cells[0]) for cells in raw]
    assert data.frame["label"].to_list() == ["attack" if cells[-1] == "PortScan" else "benign" for cells in raw]
    assert set(data.frame["label"]) == {"attack", "benign"}


@pytest.mark.parametrize(("task", "label"), [("ddos", "DDoS"), ("portscan", "Portscan")])
def test_other_attacks_of_the_corrected_release_are_left_out(task, label):
    raw = pl.read_parquet(IMPROVED).filter(pl.col("Label").is_in(["BENIGN", label]))
    frame = cicids2017(IMPROVED, task=task).frame
    assert frame["label"].to_list() == ["benign" if name == "BENIGN" else "attack" for name in raw["Label"]]
    assert frame["Flow Duration"].to_list() == raw["Flow Duration"].to_list()


def test_attempted_attacks_are_neither_benign_nor_attacks(tmp_path):
    path = labelled(tmp_path, ["BENIGN", "DDoS", "DDoS - Attempted", "Infiltration - Portscan"] * 15)
    assert cicids2017(path, task="ddos").frame["label"].to_list() == ["benign", "attack"] * 15
    assert set(cicids2017(path, task="attack").frame["label"]) >= {"DDoS", "DDoS - Attempted"}


def test_attack_keeps_every_flow_and_label():
    raw = pl.read_parquet(IMPROVED)
    data = cicids2017(IMPROVED, task="attack")
    assert data.frame["label"].to_list() == raw["Label"].to_list()
    assert data.frame["label"].n_unique() == 16


def test_the_broken_dash_of_the_official_labels_is_repaired(tmp_path):
    path = labelled(tmp_path, ["BENIGN", "Web Attack � XSS", "Web Attack – XSS"] * 10)
    assert set(cicids2017(path, task="attack").frame["label"]) == {"BENIGN", "Web Attack - XSS"}


def test_segments_are_consecutive_flows_with_the_label_of_the_last(tmp_path):
    labels = ["BENIGN"] * 9 + ["DDoS"] + ["DDoS"] * 5 + ["BENIGN"] * 10
    data = cicids2017(labelled(tmp_path, labels))
    assert [data.sequences[i].tolist() for i in range(len(data.sequences))] == [list(range(10)), list(range(10, 20))]
    assert data.sequences.labels.tolist() == ["attack", "benign"]  # the last five flows fill no segment
    alarmed = cicids2017(labelled(tmp_path, labels), segment_label="any")
    assert alarmed.sequences.labels.tolist() == ["attack", "attack"]


def test_the_window_is_a_setting():
    assert cicids2017(DDOS, window=7).sequences.lengths.tolist() == [7] * 8


def test_any_names_the_first_attack_of_a_segment(tmp_path):
    path = labelled(tmp_path, ["BENIGN", "Bot", "DDoS", "BENIGN", "BENIGN", "BENIGN"])
    assert cicids2017(path, task="attack", window=3, segment_label="any").sequences.labels.tolist() == ["Bot", "BENIGN"]


# ---- files --------------------------------------------------------------------------------------------------------


def test_a_folder_gives_the_file_of_the_task_in_any_case(tmp_path):
    labelled(tmp_path, ["PortScan"] * 20, "FRIDAY-workinghours-afternoon-PORTSCAN.pcap_ISCX.csv")
    labelled(tmp_path, ["DDoS"] * 30, "friday-workinghours-afternoon-ddos.csv")
    labelled(tmp_path, ["Bot"] * 40, "Friday-WorkingHours-Morning.pcap_ISCX.csv")
    assert cicids2017(tmp_path, task="ddos").frame.height == 30
    assert cicids2017(tmp_path, task="portscan").frame.height == 20


def test_the_corrected_release_has_one_file_for_friday(tmp_path):
    labelled(tmp_path, ["BENIGN"] * 20, "monday.csv")
    labelled(tmp_path, ["BENIGN", "DDoS"] * 20, "friday.csv")
    assert cicids2017(tmp_path, task="ddos").frame["label"].to_list() == ["benign", "attack"] * 20


def test_attack_reads_all_files_day_after_day(tmp_path):
    for name in ("Friday-WorkingHours-Afternoon-DDos", "Friday-WorkingHours-Morning", "Thursday-x", "Monday-x"):
        labelled(tmp_path, [name] * 10, f"{name}.csv")
    assert cicids2017(tmp_path, task="attack").sequences.labels.tolist() == [
        "Monday-x", "Thursday-x", "Friday-WorkingHours-Morning", "Friday-WorkingHours-Afternoon-DDos",
    ]  # fmt: skip


def test_a_packed_csv_reads_the_same(tmp_path):
    path = tmp_path / "ddos.csv.gz"
    path.write_bytes(gzip.compress(DDOS.read_bytes()))
    assert cicids2017(path).frame.equals(cicids2017(DDOS).frame)


def test_a_folder_without_the_file_is_listed(tmp_path):
    labelled(tmp_path, ["BENIGN"] * 10, "Friday-WorkingHours-Afternoon-PortScan.csv")
    with pytest.raises(InputError, match=r"'ddos'.*Friday-WorkingHours-Afternoon-PortScan\.csv"):
        cicids2017(tmp_path, task="ddos")


def test_a_file_without_flows_of_the_task_says_which_labels_it_has(tmp_path):
    with pytest.raises(InputError, match="no flow belongs to the task 'portscan'") as caught:
        cicids2017(labelled(tmp_path, ["DDoS"] * 12), task="portscan")
    assert "DDoS (12)" in caught.value.remedy


def test_missing_columns_are_named_in_both_spellings(tmp_path):
    path = tmp_path / "flows.parquet"
    pl.read_parquet(IMPROVED).drop("Dst Port").write_parquet(path)
    with pytest.raises(InputError, match="'Destination Port' or 'Dst Port'") as caught:
        cicids2017(path, task="attack")
    assert caught.value.file == str(path)


def test_a_file_without_labels_is_refused(tmp_path):
    path = tmp_path / "ddos.csv"
    path.write_text(DDOS.read_text().replace(" Label", "Remark", 1))
    with pytest.raises(InputError, match="'Label'"):
        cicids2017(path)


def test_a_word_among_the_numbers_is_named_with_its_column(tmp_path):
    path = tmp_path / "ddos.csv"
    path.write_text(DDOS.read_text().replace("Infinity", "endless", 1))
    with pytest.raises(InputError) as caught:
        cicids2017(path)
    assert (caught.value.column, caught.value.value) == ("Flow Bytes/s", "endless")


@pytest.mark.parametrize("content", [b"", b"\n", b"\xff\xfe\x00"])
def test_a_file_that_is_no_table_is_refused(tmp_path, content):
    path = tmp_path / "ddos.csv"
    path.write_bytes(content)
    with pytest.raises(InputError) as caught:
        cicids2017(path)
    assert caught.value.file == str(path)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(InputError, match="no such file"):
        cicids2017(tmp_path / "friday.csv")


@pytest.mark.parametrize("setting", [{"task": "dos"}, {"segment_label": "first"}])
def test_a_setting_that_does_not_exist_shows_those_that_do(setting):
    with pytest.raises(SettingsError, match="choose one of"):
        cicids2017(DDOS, **setting)
