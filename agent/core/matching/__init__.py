"""Requirements against hardware: which classes and nodes a serving runtime fits, how many it takes, and what is missing.

A pure library. `subject` reads what is asked, `hardware.class_facts` and `nodes.node_views` what there
is, `answer.answer_for` compares them; `explain` and `document` print an answer, `patch`, `ome` and `lint` say what to
change, what OME would do, and what would surprise. A fact that is not known makes the answer "cannot tell".
"""
