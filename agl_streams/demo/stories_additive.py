"""The stories whose first step is an addition or a subtraction."""

from __future__ import annotations

from agl_streams.demo.story import Story

ADDITION_FIRST = (
    Story(
        ("add", "add"),
        (
            "{name} collects {a} {thing} on Monday and {b} {thing} on Tuesday.",
            "On Wednesday {she} finds {c} more.",
        ),
        ("How many {thing} is that after two days?", "How many {thing} does {name} have in total?"),
        ((11, 48), (8, 39), (7, 36)),
        {"thing": ("shells", "stamps", "feathers", "pebbles")},
    ),
    Story(
        ("add", "add"),
        ("A library owns {a} {kind} and {b} comics.", "A reader donates {c} more books."),
        ("How many books are these together?", "How many books does the library own now, in total?"),
        ((120, 480), (35, 160), (12, 60)),
        {"kind": ("novels", "cookbooks", "travel guides")},
    ),
    Story(
        ("add", "add"),
        ("The first bus carries {a} pupils and the second bus carries {b}.", "{c} {adults} come along as well."),
        ("How many pupils ride on both buses together?", "How many people go on the trip altogether?"),
        ((24, 48), (19, 44), (3, 9)),
        {"adults": ("teachers", "parents", "guides")},
    ),
    Story(
        ("add", "subtract"),
        ("{name} has {a} red {thing} and {b} blue ones.", "{She} gives {c} of them away to {friend}."),
        ("How many {thing} are there in both colours together?", "How many {thing} are left for {name}?"),
        ((14, 40), (9, 35), (6, 18)),
        {"thing": ("marbles", "beads", "balloons", "crayons")},
    ),
    Story(
        ("add", "subtract"),
        (
            "A farmer picks {a} kilos of {fruit} in the morning and {b} kilos in the afternoon.",
            "At the market {c} kilos are sold.",
        ),
        ("How many kilos does the farmer pick in total?", "How many kilos are left over?"),
        ((40, 95), (30, 85), (22, 58)),
        {"fruit": ("apples", "cherries", "plums")},
    ),
    Story(
        ("add", "subtract"),
        (
            "A {train} leaves with {a} passengers, and {b} more get on at the next station.",
            "Later {c} passengers get off.",
        ),
        ("How many passengers are on board then?", "How many passengers remain on the {train}?"),
        ((60, 180), (15, 70), (20, 55)),
        {"train": ("train", "ferry", "tram")},
    ),
    Story(
        ("add", "multiply"),
        (
            "Every day {name} swims {a} lengths before breakfast and {b} more after school.",
            "{She} does the same on each of {c} days.",
        ),
        (
            "How many lengths is that in a day, both swims together?",
            "How many lengths does {name} swim in all those days?",
        ),
        ((6, 18), (5, 16), (3, 9)),
    ),
    Story(
        ("add", "multiply"),
        ("A lunch bag holds {a} {snack} and {b} grapes.", "The cook packs {c} of these bags."),
        ("How many pieces of food are in a bag in total?", "How many pieces of food are packed in all the bags?"),
        ((3, 9), (6, 14), (4, 12)),
        {"snack": ("crackers", "carrot sticks", "nuts")},
    ),
    Story(
        ("add", "multiply"),
        (
            "A ticket for the {place} costs {a} dollars, and the bus ride adds {b} dollars.",
            "{c} friends go, and each of them pays the same.",
        ),
        ("What does a person pay in total?", "How much do all of the friends pay?"),
        ((7, 24), (2, 6), (3, 8)),
        {"place": ("zoo", "museum", "circus", "theatre")},
    ),
    Story(
        ("add", "divide"),
        (
            "{name} bakes {a} vanilla {cake} and {b} chocolate {cake}.",
            "{She} spreads them equally over {c} plates.",
        ),
        ("How many {cake} does {she} bake altogether?", "How many {cake} lie on each plate?"),
        ((12, 40), (10, 38), (3, 9)),
        {"cake": ("muffins", "cookies", "waffles")},
    ),
    Story(
        ("add", "divide"),
        (
            "Two classes with {a} and {b} pupils meet in the {place}.",
            "The coach splits them evenly into teams of {c}.",
        ),
        ("How many pupils meet there together?", "How many equal teams does that make?"),
        ((18, 32), (17, 31), (4, 8)),
        {"place": ("gym", "park", "stadium")},
    ),
    Story(
        ("add", "divide"),
        (
            "{name} saves {a} dollars and {friend} saves {b} dollars.",
            "They split the money equally between {c} charities.",
        ),
        ("How much have the two saved together?", "How much does each charity receive?"),
        ((25, 90), (20, 85), (3, 6)),
    ),
)

SUBTRACTION_FIRST = (
    Story(
        ("subtract", "add"),
        ("{name} has {a} dollars and spends {b} dollars on a {toy}.", "Later {she} earns {c} more dollars."),
        ("How much money is left?", "How much money does {name} have in total after that?"),
        ((35, 90), (8, 29), (12, 40)),
        {"toy": ("kite", "puzzle", "ball", "board game")},
    ),
    Story(
        ("subtract", "add"),
        (
            "A tank holds {a} litres of water, and {b} litres leak out.",
            "Then the {worker} pours in {c} more litres.",
        ),
        ("How many litres remain in the tank?", "How many litres does the tank hold in total now?"),
        ((150, 400), (25, 90), (30, 95)),
        {"worker": ("gardener", "farmer", "janitor")},
    ),
    Story(
        ("subtract", "add"),
        ("A bakery starts with {a} {bread}, and {b} are sold by noon.", "In the afternoon the baker adds {c} more."),
        ("How many {bread} are left at noon?", "How many {bread} are there altogether in the end?"),
        ((80, 190), (25, 70), (20, 65)),
        {"bread": ("rolls", "bagels", "pretzels")},
    ),
    Story(
        ("subtract", "subtract"),
        ("There are {a} {bird} in a tree, and {b} of them fly away.", "A moment later {c} others leave the tree."),
        ("How many {bird} remain?", "How many {bird} are still left in the tree?"),
        ((40, 90), (9, 24), (5, 14)),
        {"bird": ("sparrows", "crows", "starlings")},
    ),
    Story(
        ("subtract", "subtract"),
        (
            "A {book} has {a} pages, and {name} reads {b} of them on Saturday.",
            "On Sunday {she} reads {c} of the remaining pages.",
        ),
        ("How many pages are left after Saturday?", "How many pages are still left to read?"),
        ((160, 380), (35, 80), (20, 75)),
        {"book": ("novel", "detective story", "book about whales")},
    ),
    Story(
        ("subtract", "subtract"),
        (
            "A shop has {a} {thing} and sells {b} of them.",
            "After that {c} are found broken and thrown away.",
        ),
        ("How many {thing} remain in the shop?", "How many good {thing} are left?"),
        ((70, 160), (18, 45), (5, 17)),
        {"thing": ("lamps", "vases", "mugs", "clocks")},
    ),
    Story(
        ("subtract", "multiply"),
        ("A {hall} has {a} rows of seats, but {b} rows are taken away.", "Each row has {c} seats."),
        ("How many rows are left?", "How many seats are there in all those rows?"),
        ((18, 36), (4, 9), (8, 16)),
        {"hall": ("hall", "cinema", "theatre")},
    ),
    Story(
        ("subtract", "multiply"),
        ("{name} buys {a} packs of {paper} and gives {b} packs away to {friend}.", "Every pack holds {c} sheets."),
        ("How many packs are left for {name}?", "How many sheets of {paper} are in all those packs?"),
        ((11, 24), (3, 8), (10, 40)),
        {"paper": ("paper", "stickers", "tissue")},
    ),
    Story(
        ("subtract", "multiply"),
        ("Of {a} volunteers, {b} fall ill and stay away.", "Each of the others plants {c} {tree}."),
        ("How many volunteers are left to help?", "How many {tree} do all of them plant?"),
        ((20, 44), (4, 11), (3, 9)),
        {"tree": ("trees", "bushes", "roses")},
    ),
    Story(
        ("subtract", "divide"),
        ("{name} picks {a} {fruit} and eats {b} of them.", "{She} shares the rest equally among {c} friends."),
        ("How many {fruit} are left?", "How many {fruit} does each friend get?"),
        ((40, 99), (5, 16), (3, 8)),
        {"fruit": ("pears", "apricots", "strawberries", "figs")},
    ),
    Story(
        ("subtract", "divide"),
        (
            "A roll holds {a} metres of {rope}, and {b} metres of it are lost.",
            "The rest is cut into {c} equal pieces.",
        ),
        ("How many metres remain on the roll?", "How long is each equal piece, in metres?"),
        ((50, 130), (6, 22), (4, 12)),
        {"rope": ("rope", "wire", "ribbon")},
    ),
    Story(
        ("subtract", "divide"),
        (
            "A school orders {a} {thing}, but {b} of them arrive broken and go back.",
            "The good ones are split evenly between {c} rooms.",
        ),
        ("How many good {thing} are left?", "How many {thing} does each room get?"),
        ((60, 150), (6, 20), (4, 9)),
        {"thing": ("chairs", "desks", "lamps")},
    ),
)
