"""What answers beside the language model, from fields: it reads slots, not codes.

heads       linear functions and trees, as numbers
trees       trees of scikit-learn become such numbers
classifier  a language model and a head that answer together
label       boosted trees for the label (`beside: trees`)
"""
