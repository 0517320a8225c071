"""The stories whose first step is a multiplication or a division."""

from __future__ import annotations

from agl_streams.demo.story import Story

MULTIPLICATION_FIRST = (
    Story(
        ("multiply", "add"),
        ("{name} packs {a} boxes with {b} {thing} in each box.", "{c} more lie beside the boxes on the table."),
        ("How many {thing} are in all the boxes?", "How many {thing} are there altogether, boxes and table together?"),
        ((4, 12), (6, 24), (7, 30)),
        {"thing": ("candles", "pencils", "soaps", "postcards")},
    ),
    Story(
        ("multiply", "add"),
        ("A {hotel} has {a} floors with {b} rooms on every floor.", "A new wing adds {c} more rooms."),
        ("How many rooms are on all the floors?", "How many rooms does the {hotel} have in total?"),
        ((4, 15), (8, 22), (12, 40)),
        {"hotel": ("hotel", "hospital", "hostel")},
    ),
    Story(
        ("multiply", "add"),
        (
            "{name} {works} for {a} hours and earns {b} dollars every hour.",
            "A kind neighbour adds {c} dollars more as a tip.",
        ),
        ("How much does {she} earn in all those hours?", "How much money does {name} get in total?"),
        ((3, 9), (8, 19), (5, 24)),
        {"works": ("babysits", "mows lawns", "washes cars")},
    ),
    Story(
        ("multiply", "subtract"),
        ("{name} buys {a} cartons with {b} eggs in each.", "On the way home {c} eggs break."),
        ("How many eggs are in all the cartons?", "How many whole eggs are left?"),
        ((3, 9), (6, 12), (4, 15)),
    ),
    Story(
        ("multiply", "subtract"),
        ("{name} buys {a} {ticket} at {b} dollars each.", "{She} pays with {c} dollars."),
        ("What is the price of all the {ticket}?", "How much money is left over as change?"),
        ((3, 6), (4, 14), (50, 100)),
        {"ticket": ("tickets", "calendars", "plants")},
        swapped=True,
    ),
    Story(
        ("multiply", "subtract"),
        ("A garden has {a} rows with {b} {flower} in every row.", "A storm takes away {c} of them."),
        ("How many {flower} grow in all the rows?", "How many {flower} remain?"),
        ((5, 14), (8, 20), (12, 38)),
        {"flower": ("tulips", "daisies", "sunflowers")},
    ),
    Story(
        ("multiply", "multiply"),
        ("A crate holds {a} bags, and every bag holds {b} {fruit}.", "A truck carries {c} such crates."),
        ("How many {fruit} are in all the bags of a crate?", "How many {fruit} are in all the crates on the truck?"),
        ((4, 12), (6, 15), (5, 20)),
        {"fruit": ("oranges", "lemons", "onions", "potatoes")},
    ),
    Story(
        ("multiply", "multiply"),
        (
            "At every training {name} runs {a} rounds of {b} metres each.",
            "{She} trains like this {c} times in every month.",
        ),
        ("How many metres are all the rounds of a training?", "How many metres does {she} run in all those times?"),
        ((4, 12), (150, 400), (5, 12)),
    ),
    Story(
        ("multiply", "multiply"),
        (
            "A {machine} makes {a} pages every minute and runs for {b} minutes.",
            "The office has {c} such machines, and each does the same.",
        ),
        ("How many pages is that in all those minutes?", "How many pages do all the machines make?"),
        ((12, 40), (5, 15), (3, 8)),
        {"machine": ("printer", "copier", "scanner")},
    ),
    Story(
        ("multiply", "divide"),
        ("{name} buys {a} bags with {b} {sweet} in each bag.", "{She} shares them equally among {c} children."),
        ("How many {sweet} are in all the bags?", "How many {sweet} does each child get?"),
        ((4, 12), (9, 24), (3, 9)),
        {"sweet": ("sweets", "nuts", "toffees")},
    ),
    Story(
        ("multiply", "divide"),
        (
            "A machine fills {a} {bottle} every hour and runs for {b} hours.",
            "The workers split them evenly between {c} crates.",
        ),
        ("How many {bottle} are filled in all those hours?", "How many {bottle} are in each crate?"),
        ((30, 90), (4, 9), (8, 24)),
        {"bottle": ("bottles", "jars", "cans")},
    ),
    Story(
        ("multiply", "divide"),
        (
            "{a} {people} pay {b} dollars each into a pot.",
            "The money is divided equally over {c} weeks.",
        ),
        ("How much money is in the pot when all have paid?", "How much money is there for each week?"),
        ((4, 14), (9, 30), (4, 12)),
        {"people": ("friends", "players", "neighbours", "cousins")},
    ),
)

DIVISION_FIRST = (
    Story(
        ("divide", "add"),
        (
            "{name} shares {a} {thing} equally among {b} children.",
            "A child called {friend} already has {c} more at home.",
        ),
        ("How many {thing} does each child get?", "How many {thing} does {friend} have altogether?"),
        ((48, 120), (4, 8), (9, 30)),
        {"thing": ("marbles", "stickers", "shells")},
    ),
    Story(
        ("divide", "add"),
        (
            "A {ribbon} of {a} centimetres is cut into {b} equal pieces.",
            "{name} sews {c} more centimetres onto a piece.",
        ),
        ("How long is each piece, in centimetres?", "How long is that piece in total?"),
        ((90, 320), (4, 9), (7, 28)),
        {"ribbon": ("ribbon", "scarf", "belt")},
    ),
    Story(
        ("divide", "add"),
        ("A {club} of {a} members is split evenly into {b} groups.", "Then {c} visitors join the first group as well."),
        ("How many members are in each group?", "How many people are in the first group altogether?"),
        ((48, 132), (4, 11), (3, 12)),
        {"club": ("choir", "chess club", "drama class")},
    ),
    Story(
        ("divide", "subtract"),
        ("A baker spreads {a} {cake} equally over {b} jars.", "{name} takes {c} of them away from the last jar."),
        ("How many {cake} does each jar get?", "How many {cake} are left in that jar?"),
        ((90, 240), (5, 9), (4, 13)),
        {"cake": ("biscuits", "macaroons", "gingerbread men")},
    ),
    Story(
        ("divide", "subtract"),
        (
            "The bill for {meal} is {a} dollars and is split evenly between {b} friends.",
            "{name} has a voucher that takes {c} dollars away.",
        ),
        ("How much is the equal share of each friend?", "How much is left for {name} to pay?"),
        ((60, 180), (3, 8), (4, 12)),
        {"meal": ("dinner", "lunch", "the pizza")},
    ),
    Story(
        ("divide", "subtract"),
        ("A farmer splits {a} {bird} evenly between {b} barns.", "A fox chases {c} of them away."),
        ("How many {bird} does each barn get?", "How many {bird} remain in the barn that the fox visited?"),
        ((84, 210), (4, 7), (5, 14)),
        {"bird": ("hens", "geese", "ducks")},
    ),
    Story(
        ("divide", "multiply"),
        (
            "A set of {b} equal {thing} costs {a} dollars.",
            "{name} buys {c} such {thing}, every one at that price.",
        ),
        ("What is the price of each when it is split evenly?", "How much do all of them cost?"),
        ((36, 120), (4, 9), (3, 8)),
        {"thing": ("notebooks", "spoons", "plates", "brushes")},
    ),
    Story(
        ("divide", "multiply"),
        (
            "A {car} covers {a} kilometres in {b} hours, at an even speed.",
            "Tomorrow it travels at that speed for {c} hours.",
        ),
        ("How many kilometres is that for each hour, split evenly?", "How many kilometres is that in all those hours?"),
        ((180, 480), (3, 8), (5, 12)),
        {"car": ("car", "truck", "coach", "motorbike")},
    ),
    Story(
        ("divide", "multiply"),
        ("{a} {thing} are divided equally into {b} rows.", "In the garden there are {c} such rows."),
        ("How many {thing} does each row get?", "How many {thing} are in all the rows of the garden?"),
        ((60, 168), (5, 12), (3, 9)),
        {"thing": ("chairs", "pots", "lanterns")},
    ),
    Story(
        ("divide", "divide"),
        (
            "A load of {a} sacks of {stuff} is split evenly between {b} trucks.",
            "Every truck spreads its sacks equally over {c} shops.",
        ),
        ("How many sacks does each truck get?", "How many sacks does each shop receive?"),
        ((120, 480), (3, 6), (4, 9)),
        {"stuff": ("rice", "flour", "coffee")},
    ),
    Story(
        ("divide", "divide"),
        ("A roll of {a} metres of {cloth} is cut into {b} equal parts.", "Each part is cut into {c} equal strips."),
        ("How long is each part, in metres?", "How long is each strip, in metres?"),
        ((96, 360), (3, 8), (3, 9)),
        {"cloth": ("cloth", "silk", "foil")},
    ),
    Story(
        ("divide", "divide"),
        (
            "A prize of {a} dollars is shared equally by {b} teams.",
            "Every team divides its part evenly between {c} {player}.",
        ),
        ("How much does each team get?", "How much does each of the {player} receive?"),
        ((180, 720), (3, 6), (4, 10)),
        {"player": ("players", "runners", "dancers")},
    ),
)
