"""Starvation: a gang that cannot fit now neither blocks everyone behind it nor starves. Muster's own rule.

    After a configurable count of tries it gets a nominated claim on the nodes that will be free first (durations
    unknown: most room soonest), smaller work passes it only where it doesn't delay it.

The planner's part: when a gang starves (`starving`), and which nodes it asks for (`node_choice`). The binder answers,
and ends what it granted (`services.binder.rules.starvation`). What is kept, and from whom, is one question for both
(`services.state.reservations`).

*A try* is a refusal for lack of room. *A claim* is a reservation: it takes what is free on the chosen nodes and all that
becomes free there, until the gang fits. *Smaller work passes* (backfill) on all other nodes, and on these beyond what the
gang needs there. Groups of a higher priority pass everywhere. There is no preemption: nobody is evicted for it.
"""
