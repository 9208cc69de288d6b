"""The paper's figures, as its tables print them; `ON` says what they were measured on."""

from __future__ import annotations

ON = "measured on MIMIC-III (clinical) and the Friday files of the original CIC-IDS2017 (DDoS, PortScan), not on ours"
#: Our open stand-in for each of the paper's data sets.
STANDS_FOR = {
    "diabetes130-open": "clinical",
    "diabetes130": "clinical",
    "mimic3": "clinical",
    "ddos": "ddos",
    "portscan": "portscan",
}

RECONSTRUCTION = {
    "clinical": {"slot_accuracy": 0.9438, "close_accuracy": 0.9491, "nmse": 0.0407},
    "ddos": {"slot_accuracy": 0.9728, "close_accuracy": 0.9994, "nmse": 0.0012, "utilisation": 0.875},
    "portscan": {"slot_accuracy": 0.9859, "close_accuracy": 0.9995, "nmse": 0.0009, "utilisation": 0.729},
}
ALIGNMENT = {
    "clinical": {"slot_accuracy": 0.9063, "close_accuracy": 0.9177},
    "ddos": {"slot_accuracy": 0.9692, "close_accuracy": 0.9976},
    "portscan": {"slot_accuracy": 0.9845, "close_accuracy": 0.9984},
}
HIERARCHY = (
    {"intra": 4.606, "inter": 7.42, "ratio": 0.619},
    {"intra": 2.323, "inter": 7.42, "ratio": 0.313},
    {"intra": 1.217, "inter": 7.44, "ratio": 0.164},
)
#: baselines: accuracy, macro F1
BASELINES = {
    "tfidf": (0.7713, 0.7709),
    "xgboost": (0.7661, 0.7580),
    "set-transformer": (0.7997, 0.7993),
    "lightgbm": (0.8117, 0.8105),
    "tabpfn": (0.8169, 0.8168),
}
#: backbone: tokens, accuracy and macro F1 on text, then on codes
BACKBONES = {
    "clinical": {
        "Qwen3-0.6B": ((3938, 0.8315, 0.8313), (35, 0.8117, 0.8117)),
        "Qwen3-1.7B": ((3938, 0.8289, 0.8275), (35, 0.8212, 0.8211)),
        "Qwen3-4B": ((3938, 0.8048, 0.8043), (35, 0.8117, 0.8117)),
        "Qwen3-8B": ((3938, 0.8435, 0.8435), (35, 0.8237, 0.8237)),
        "Gemma-2-2B": ((3630, 0.8134, 0.8123), (37, 0.8057, 0.8053)),
        "Phi-4-mini": ((3724, 0.8022, 0.8021), (34, 0.8014, 0.8012)),
    },
    "ddos": {
        "Qwen3-0.6B": ((5639, 1.0000, 1.0000), (97, 0.9978, 0.9977)),
        "Qwen3-1.7B": ((5639, 1.0000, 1.0000), (97, 0.9960, 0.9959)),
        "Qwen3-4B": ((5639, 0.9894, 0.9982), (97, 0.9987, 0.9986)),
        "Qwen3-8B": ((5639, 0.9987, 0.9991), (97, 0.9987, 0.9986)),
        "Gemma-2-2B": ((5640, 0.9969, 0.9969), (97, 0.9978, 0.9977)),
        "Phi-4-mini": ((5633, 0.9982, 0.9982), (91, 0.9996, 0.9995)),
    },
    "portscan": {
        "Qwen3-0.6B": ((5677, 0.9948, 0.9947), (97, 0.9948, 0.9947)),
        "Qwen3-1.7B": ((5677, 0.9983, 0.9982), (97, 0.9944, 0.9943)),
        "Qwen3-4B": ((5677, 0.9987, 0.9985), (97, 0.9962, 0.9961)),
        "Qwen3-8B": ((5677, 0.9983, 0.9989), (97, 0.9986, 0.9986)),
        "Gemma-2-2B": ((5678, 0.9981, 0.9980), (97, 0.9972, 0.9972)),
        "Phi-4-mini": ((5671, 0.9923, 0.9922), (91, 0.9969, 0.9968)),
    },
}
#: strategy: accuracy at 25, 20, 15, 10 and 5% of all slots
RATIONALES = {
    "everything": (0.8212,) * 5,
    "nothing": (0.4979,) * 5,
    "random": (0.6526, 0.6496, 0.6389, 0.6036, 0.5494),
    "mutual information": (0.7025, 0.6862, 0.6518, 0.6561, 0.6380),
    "gradient saliency": (0.6715, 0.6707, 0.6724, 0.6727, 0.6655),
    "attention": (0.6793, 0.6655, 0.6612, 0.6638, 0.6610),
    "LRP": (0.7962, 0.7661, 0.7489, 0.7214, 0.6973),
    "SHAP": (0.8126, 0.8043, 0.7865, 0.7429, 0.7051),
    "prediction fidelity only (the paper's)": (0.7360, 0.7291, 0.7257, 0.7231, 0.7177),
    "dual fidelity (the paper's)": (0.8126, 0.8040, 0.7893, 0.7704, 0.7472),
}
#: accuracy with and without alignment. The paper's figures for flows repeat its rows for C64 and C128: no effect of
#: alignment can be read from them.
PRETRAINING = {"clinical": (0.8212, 0.7575), "ddos": (0.9960, 0.9951), "portscan": (0.9944, 0.9920)}
#: (K, C): slot accuracy, ±1, reconstruction; and for flows collisions, utilisation
SHAPES: dict[str, dict[tuple[int, int], tuple[float, ...]]] = {
    "clinical": {
        (2, 128): (0.9403, 0.9456, 0.0426),
        (2, 256): (0.9415, 0.9471, 0.0414),
        (3, 64): (0.9414, 0.9469, 0.0420),
        (3, 128): (0.9438, 0.9491, 0.0407),
        (3, 256): (0.9452, 0.9505, 0.0394),
        (3, 512): (0.9457, 0.9511, 0.0393),
        (4, 128): (0.9471, 0.9523, 0.0382),
        (4, 256): (0.9478, 0.9532, 0.0378),
    },
    "ddos": {
        (3, 64): (0.9670, 0.9991, 0.0014, 0.7032, 1.000),
        (3, 128): (0.9728, 0.9994, 0.0012, 0.6390, 0.875),
        (3, 256): (0.9779, 0.9996, 0.0010, 0.5935, 0.768),
        (3, 512): (0.9833, 0.9997, 0.0008, 0.5336, 0.733),
    },
    "portscan": {
        (3, 64): (0.9828, 0.9992, 0.0010, 0.8531, 0.969),
        (3, 128): (0.9859, 0.9995, 0.0009, 0.8203, 0.729),
        (3, 256): (0.9894, 0.9996, 0.0006, 0.7824, 0.602),
        (3, 512): (0.9919, 0.9998, 0.0005, 0.8230, 0.507),
    },
}
#: (K, C): slot accuracy of codes written from words
SHAPES_ALIGNED: dict[str, dict[tuple[int, int], float]] = {
    "clinical": {
        (2, 128): 0.9031, (2, 256): 0.9046, (3, 64): 0.9061, (3, 128): 0.9063,
        (3, 256): 0.9068, (3, 512): 0.9018, (4, 128): 0.9074, (4, 256): 0.9059,
    },
    "ddos": {(3, 64): 0.9627, (3, 128): 0.9692, (3, 256): 0.9700, (3, 512): 0.9757},
    "portscan": {(3, 64): 0.9824, (3, 128): 0.9845, (3, 256): 0.9871, (3, 512): 0.9885},
}  # fmt: skip
#: (K, C): accuracy, macro F1
SHAPES_PREDICTED: dict[str, dict[tuple[int, int], tuple[float, float]]] = {
    "clinical": {
        (2, 128): (0.8108, 0.8108),
        (3, 64): (0.8031, 0.8031),
        (3, 128): (0.8212, 0.8211),
        (3, 256): (0.7713, 0.7713),
        (3, 512): (0.7300, 0.7286),
        (4, 128): (0.7919, 0.7918),
    },
    "ddos": {
        (3, 64): (0.9960, 0.9959),
        (3, 128): (0.9951, 0.9951),
        (3, 256): (0.9956, 0.9955),
        (3, 512): (0.9960, 0.9959),
    },
    "portscan": {
        (3, 64): (0.9944, 0.9943),
        (3, 128): (0.9920, 0.9918),
        (3, 256): (0.9934, 0.9933),
        (3, 512): (0.9913, 0.9911),
    },
}
