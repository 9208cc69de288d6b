"""Questions in words about a history: which are asked, what the answers were, how they are learned and measured.

config      `questions:` of a task file
catalogue   settings, titles and value names become questions
answers     histories of a table, and the answer to every question where it can be asked
prepare     questions with enough answers, and the histories of each part of the data
teacher     how probable each answer is, for the language model to learn
learn       pairs of a history and a question to learn from
measure     how good the answers are, on trained questions and on questions that were held out
teach       a new question from a few labelled sequences
answering   who answers: the language model, a head beside it, or both
words       new questions, from the words of trained ones
book        what is stored with a model
compare     one LightGBM per question
"""
