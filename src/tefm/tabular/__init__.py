"""Plain models on the fields of a sequence: the one home of trees and regressions.

`inputs` says what they are given, `learners` how LightGBM and logistic regression are fitted, and `baselines` fits
these two on the same split as ours. `teacher` and `question_teacher` are cross-fitted: codes and language model learn
from their held-out answers (distillation); `label_trees` answer beside it, and `few_labels` learns one new question.
`heads` is how trees and linear functions are stored: as numbers.
"""
