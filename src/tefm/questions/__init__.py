"""Questions in words about a history: which are asked, what the answers were, how they are learned and measured.

config      `questions:` of a task file
catalogue   settings, titles and value names become questions
answers     histories of a table, and the answer to every question where it can be asked
prepare     questions with enough answers, and the histories of each part of the data
learn       pairs of a history and a question to learn from
measure     how good the answers are, on trained questions and on questions that were held out
teach       a new question from a few labelled sequences
book        what is stored with a model
compare     one LightGBM per question
"""
