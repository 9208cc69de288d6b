"""Questions in words about a history: which are asked, what the answers were, how they are learned and measured.

config          `questions:` of a task file
catalogue       settings, titles and value names become questions
question_data   histories of a table, and the answer to every question where it can be asked; questions with enough
                answers, and the pairs of both that are used: to learn from, with the teacher's probability of each
                answer (distillation), to stop on, and to measure
answering       who answers: the language model, a head beside it, or both; new questions from the words of trained ones
measure         how good the answers are, on trained and on held-out questions; one LightGBM per question beside them
book            what is stored with a model
"""
