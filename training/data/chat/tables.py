"""The facts, one row a line: fields are parted by `|`, and `a b` lists by commas."""

CAPITALS = """
France|Paris
Germany|Berlin
Italy|Rome
Spain|Madrid
Portugal|Lisbon
England|London
the United Kingdom|London
Scotland|Edinburgh
Wales|Cardiff
Ireland|Dublin
Belgium|Brussels
the Netherlands|Amsterdam
Switzerland|Bern
Austria|Vienna
Poland|Warsaw
the Czech Republic|Prague
Hungary|Budapest
Greece|Athens
Turkey|Ankara
Russia|Moscow
Ukraine|Kyiv
Sweden|Stockholm
Norway|Oslo
Denmark|Copenhagen
Finland|Helsinki
Iceland|Reykjavik
Romania|Bucharest
Bulgaria|Sofia
Serbia|Belgrade
Croatia|Zagreb
Slovenia|Ljubljana
Slovakia|Bratislava
Estonia|Tallinn
Latvia|Riga
Lithuania|Vilnius
Malta|Valletta
Cyprus|Nicosia
Luxembourg|Luxembourg
the United States|Washington, D.C.
Canada|Ottawa
Mexico|Mexico City
Cuba|Havana
Jamaica|Kingston
Brazil|Brasilia
Argentina|Buenos Aires
Chile|Santiago
Peru|Lima
Colombia|Bogota
Venezuela|Caracas
Ecuador|Quito
Uruguay|Montevideo
Paraguay|Asuncion
China|Beijing
Japan|Tokyo
South Korea|Seoul
North Korea|Pyongyang
India|New Delhi
Pakistan|Islamabad
Bangladesh|Dhaka
Nepal|Kathmandu
Thailand|Bangkok
Vietnam|Hanoi
Indonesia|Jakarta
Malaysia|Kuala Lumpur
the Philippines|Manila
Singapore|Singapore
Mongolia|Ulaanbaatar
Iran|Tehran
Iraq|Baghdad
Israel|Jerusalem
Jordan|Amman
Lebanon|Beirut
Saudi Arabia|Riyadh
Qatar|Doha
Egypt|Cairo
Morocco|Rabat
Algeria|Algiers
Tunisia|Tunis
Libya|Tripoli
Nigeria|Abuja
Ghana|Accra
Kenya|Nairobi
Ethiopia|Addis Ababa
Uganda|Kampala
Tanzania|Dodoma
Senegal|Dakar
South Africa|Pretoria
Zimbabwe|Harare
Zambia|Lusaka
Madagascar|Antananarivo
Australia|Canberra
New Zealand|Wellington
Fiji|Suva
"""

CONTINENTS = """
Europe|France, Germany, Italy, Spain, Portugal, Poland, Greece, Sweden, Norway, Finland, Ireland, Austria
Asia|China, Japan, India, Thailand, Vietnam, Nepal, South Korea, Mongolia, Indonesia, Pakistan
Africa|Egypt, Kenya, Nigeria, Morocco, Ghana, Ethiopia, Algeria, Senegal, Uganda, Zambia
South America|Brazil, Argentina, Chile, Peru, Colombia, Ecuador, Uruguay, Venezuela
North America|Canada, Mexico, the United States, Cuba
"""

COLOURS = """
the sky|blue
grass|green
the sun|yellow
snow|white
coal|black
blood|red
a banana|yellow
an orange|orange
a lemon|yellow
a lime|green
a carrot|orange
a tomato|red
a strawberry|red
a cherry|red
milk|white
chocolate|brown
a leaf|green
the sea|blue
an elephant|grey
a frog|green
a flamingo|pink
a polar bear|white
a crow|black
a pumpkin|orange
spinach|green
a cucumber|green
a plum|purple
an eggplant|purple
a fire truck|red
gold|yellow
silver|grey
the night sky|black
a cloud|white
cheese|yellow
coffee|brown
salt|white
sand|yellow
a rose|red
a violet|purple
wood|brown
"""

ANIMALS = """
dog|barks|4|puppy|kennel
cat|meows|4|kitten|house
cow|moos|4|calf|barn
horse|neighs|4|foal|stable
sheep|bleats|4|lamb|barn
goat|bleats|4|kid|barn
pig|oinks|4|piglet|sty
duck|quacks|2|duckling|nest
hen|clucks|2|chick|coop
bird|sings|2|chick|nest
lion|roars|4|cub|den
bear|growls|4|cub|den
wolf|howls|4|pup|den
frog|croaks|4|tadpole|pond
bee|buzzes|6|larva|hive
mouse|squeaks|4|pup|hole
owl|hoots|2|owlet|tree
snake|hisses|0|snakelet|hole
elephant|trumpets|4|calf|savanna
monkey|chatters|4|infant|tree
donkey|brays|4|foal|stable
goose|honks|2|gosling|nest
turkey|gobbles|2|poult|coop
tiger|roars|4|cub|jungle
"""

LEGS = """
spider|8
ant|6
bee|6
fly|6
butterfly|6
beetle|6
crab|10
hermit crab|10
lobster|10
octopus|0
fish|0
snake|0
worm|0
chicken|2
penguin|2
person|2
kangaroo|2
ostrich|2
giraffe|4
camel|4
rabbit|4
fox|4
zebra|4
turtle|4
lizard|4
crocodile|4
"""

OPPOSITES = """
hot|cold
big|small
tall|short
fast|slow
happy|sad
up|down
left|right
open|closed
day|night
light|dark
old|new
young|old
rich|poor
hard|soft
strong|weak
wet|dry
full|empty
early|late
clean|dirty
loud|quiet
near|far
first|last
high|low
thick|thin
wide|narrow
deep|shallow
good|bad
right|wrong
true|false
black|white
in|out
on|off
above|below
inside|outside
push|pull
start|stop
begin|end
buy|sell
give|take
win|lose
love|hate
laugh|cry
remember|forget
arrive|leave
summer|winter
north|south
east|west
sweet|sour
heavy|light
cheap|expensive
easy|difficult
safe|dangerous
brave|afraid
kind|cruel
polite|rude
smooth|rough
sharp|blunt
always|never
before|after
more|less
many|few
friend|enemy
success|failure
question|answer
peace|war
"""

PLURALS = """
cat|cats
dog|dogs
house|houses
book|books
box|boxes
bus|buses
fox|foxes
glass|glasses
dish|dishes
watch|watches
baby|babies
city|cities
lady|ladies
party|parties
story|stories
boy|boys
key|keys
day|days
leaf|leaves
knife|knives
wife|wives
wolf|wolves
shelf|shelves
half|halves
man|men
woman|women
child|children
foot|feet
tooth|teeth
goose|geese
mouse|mice
person|people
ox|oxen
fish|fish
sheep|sheep
deer|deer
potato|potatoes
tomato|tomatoes
hero|heroes
photo|photos
piano|pianos
apple|apples
tree|trees
crab|crabs
shell|shells
"""

PAST = """
go|went
see|saw
eat|ate
drink|drank
run|ran
come|came
take|took
give|gave
make|made
find|found
think|thought
buy|bought
bring|brought
teach|taught
catch|caught
write|wrote
read|read
speak|spoke
say|said
tell|told
know|knew
grow|grew
fly|flew
swim|swam
sing|sang
sleep|slept
feel|felt
keep|kept
leave|left
lose|lost
meet|met
pay|paid
send|sent
sit|sat
stand|stood
win|won
walk|walked
play|played
work|worked
jump|jumped
"""

UNITS = """
seconds|a minute|60
minutes|an hour|60
hours|a day|24
days|a week|7
days|a year|365
months|a year|12
weeks|a year|52
years|a decade|10
years|a century|100
years|a millennium|1000
centimeters|a meter|100
millimeters|a centimeter|10
meters|a kilometer|1000
grams|a kilogram|1000
kilograms|a ton|1000
milliliters|a liter|1000
inches|a foot|12
feet|a yard|3
ounces|a pound|16
cents|a dollar|100
items|a dozen|12
degrees|a circle|360
degrees|a right angle|90
sides|a triangle|3
sides|a square|4
sides|a pentagon|5
sides|a hexagon|6
sides|an octagon|8
bits|a byte|8
letters|the English alphabet|26
players|a football team|11
strings|a guitar|6
strings|a violin|4
keys|a piano|88
planets|the solar system|8
continents|the world|7
cards|a deck|52
squares|a chessboard|64
colours|a rainbow|7
fingers|a hand|5
days|a leap year|366
days|January|31
days|April|30
days|June|30
days|July|31
days|September|30
days|December|31
quarters|a year|4
seasons|a year|4
"""

DEFINITIONS = """
a computer|A computer is a machine that stores and works on information.
a book|A book is a set of pages with text or pictures, bound together.
a tree|A tree is a tall plant with a trunk, branches and leaves.
a river|A river is water that flows across the land to a lake or the sea.
a mountain|A mountain is a very high part of the land.
an island|An island is land with water all around it.
a desert|A desert is a dry place where little rain falls.
a forest|A forest is a large area covered with trees.
a lake|A lake is a large body of water with land all around it.
the moon|The moon is a ball of rock that travels around the Earth.
the sun|The sun is the star at the center of our solar system.
a star|A star is a huge ball of hot gas that gives off light.
a planet|A planet is a large round body that travels around a star.
a comet|A comet is a ball of ice and dust that travels around the sun.
gravity|Gravity is the force that pulls things toward each other.
electricity|Electricity is energy that flows through wires and powers machines.
energy|Energy is the ability to do work.
light|Light is energy that we can see.
sound|Sound is a vibration that travels through the air to our ears.
rain|Rain is water that falls from the clouds in drops.
snow|Snow is frozen water that falls from the clouds in soft flakes.
ice|Ice is frozen water.
wind|Wind is moving air.
a cloud|A cloud is made of many tiny drops of water in the sky.
a rainbow|A rainbow is an arc of colours made by sunlight and rain.
a volcano|A volcano is a mountain that can throw out hot melted rock.
an earthquake|An earthquake is a sudden shaking of the ground.
photosynthesis|Photosynthesis is how plants make food from sunlight, water and air.
a hermit crab|A hermit crab is a small crab that lives in an empty shell and moves to a larger one when it grows.
a crab|A crab is a sea animal with a hard shell, ten legs and two claws.
a dog|A dog is a friendly animal with four legs that people keep as a pet.
a cat|A cat is a small furry animal that people keep as a pet.
a bird|A bird is an animal with wings, feathers and a beak.
a fish|A fish is an animal that lives in water and breathes with gills.
an insect|An insect is a small animal with six legs.
a whale|A whale is a very large animal that lives in the sea and breathes air.
a bee|A bee is an insect that makes honey.
honey|Honey is a sweet food that bees make from flowers.
bread|Bread is a food made from flour and water and baked in an oven.
cheese|Cheese is a food made from milk.
butter|Butter is a yellow food made from cream.
tea|Tea is a hot drink made from leaves and water.
coffee|Coffee is a hot drink made from roasted beans.
a school|A school is a place where people go to learn.
a hospital|A hospital is a place where sick people are cared for.
a library|A library is a place where you can read and borrow books.
a museum|A museum is a place where interesting things are shown.
a doctor|A doctor is a person who helps sick people get well.
a teacher|A teacher is a person who helps others learn.
a farmer|A farmer is a person who grows food.
a baker|A baker is a person who makes bread and cakes.
a pilot|A pilot is a person who flies a plane.
a bicycle|A bicycle is a vehicle with two wheels that you move with your feet.
a car|A car is a vehicle with four wheels and an engine.
a train|A train is a line of wagons that runs on rails.
a boat|A boat is a small vehicle that travels on water.
a plane|A plane is a vehicle with wings that flies through the air.
a bridge|A bridge is something built so that people can cross a river or a road.
a map|A map is a drawing that shows where places are.
a clock|A clock is a device that shows the time.
a calendar|A calendar is a list of the days and months of a year.
a key|A key is a small piece of metal that opens a lock.
a mirror|A mirror is a piece of glass in which you can see yourself.
a dictionary|A dictionary is a book that explains words.
a poem|A poem is a short text with rhythm and often rhyme.
a story|A story tells about people and what happens to them.
a song|A song is words set to music.
a noun|A noun is a word for a person, a place or a thing.
a verb|A verb is a word for an action.
an adjective|An adjective is a word that describes a noun.
a sentence|A sentence is a group of words that makes a complete thought.
a number|A number is used to count or to measure.
a prime number|A prime number is a number greater than one that only one and itself divide.
an even number|An even number is a number that two divides.
an odd number|An odd number is a number that two does not divide.
a triangle|A triangle is a shape with three sides.
a square|A square is a shape with four equal sides and four right angles.
a circle|A circle is a round shape whose points are all equally far from its center.
a sphere|A sphere is a shape like a ball.
addition|Addition puts numbers together to make a sum.
multiplication|Multiplication is adding a number to itself several times.
software|Software is the set of programs that tell a computer what to do.
hardware|Hardware is the parts of a computer that you can touch.
the internet|The internet is a network that connects computers all over the world.
a program|A program is a list of steps that a computer follows.
an algorithm|An algorithm is a list of steps that solves a problem.
a variable|A variable is a name for a value in a program.
a function|A function is a named piece of a program that does one job.
a loop|A loop is a part of a program that repeats.
a bug|A bug is a mistake in a program.
a compiler|A compiler is a program that turns code into something a machine can run.
a server|A server is a computer that answers requests from other computers.
a browser|A browser is a program that shows web pages.
a database|A database is an ordered store of information.
a file|A file is a named piece of information kept on a computer.
a password|A password is a secret word that lets you in.
a robot|A robot is a machine that can do tasks by itself.
a language model|A language model is a program that predicts the next piece of a text.
a token|A token is a small piece of text, such as a word or a digit.
Python|Python is a programming language that is easy to read.
JavaScript|JavaScript is a programming language used on web pages.
friendship|Friendship is a close and kind bond between people.
happiness|Happiness is the feeling of being glad.
music|Music is sound arranged so that it is pleasant to hear.
art|Art is something made to be beautiful or to express a feeling.
history|History is the study of what happened in the past.
science|Science is the study of the world by watching and testing.
biology|Biology is the study of living things.
chemistry|Chemistry is the study of what things are made of and how they change.
physics|Physics is the study of matter, energy and forces.
geography|Geography is the study of the Earth and its places.
astronomy|Astronomy is the study of the stars and planets.
"""

EXPLANATIONS = """
Why is the sky blue?/Why's the sky blue?/Can you explain why the sky is blue?|Air scatters blue light from the sun more than red light, so the sky looks blue.
Why do leaves fall in autumn?|Trees drop their leaves in autumn to save water and energy during the winter.
Why does ice float?|Ice floats because it is lighter than the same amount of water.
Why do we sleep?|We sleep so that the body and the brain can rest and repair themselves.
Why do birds fly south?|Many birds fly south in winter to find warmth and food.
How do plants grow?|Plants grow with water, light, air and food from the soil.
How do fish breathe?|Fish breathe with gills, which take oxygen from the water.
How does a plane fly?|A plane flies because air moving over its wings lifts it up.
How do bees make honey?|Bees collect nectar from flowers and turn it into honey in the hive.
How does rain form?|Water rises as vapour, cools into clouds and falls as rain.
Why is the sea salty?|Rivers carry salt from rocks into the sea, and it stays there when water rises as vapour.
Why do we have seasons?|We have seasons because the Earth is tilted as it travels around the sun.
What causes day and night?|The Earth turns once a day, so each place faces the sun and then turns away from it.
What causes the tides?|The pull of the moon on the sea causes the tides.
How do I make tea?/How do you make tea?/How can I make tea?|Boil water, pour it over the tea, wait a few minutes and enjoy.
How do I make a sandwich?/How do you make a sandwich?|Take two slices of bread, put cheese or vegetables between them and enjoy.
How do I boil an egg?/How do you boil an egg?|Put the egg in boiling water, wait eight minutes and cool it in cold water.
How do I make pancakes?/How do you make pancakes?|Mix flour, milk and eggs, then fry thin rounds of it in a pan.
How do I plant a tree?|Dig a hole, put the roots in, fill it with soil and water it well.
How do I learn to code?|Start with small programs, read good code and practise every day.
How can I sleep better?|Go to bed at the same time every day and keep your room dark and quiet.
How can I be happy?|Spend time with people you like, move a little every day and rest well.
How can I stay healthy?|Eat well, sleep enough, drink water and move every day.
How do I save money?|Spend less than you earn and put a little aside each month.
How do I learn a language?|Learn a few words each day and speak as often as you can.
Who wrote Romeo and Juliet?/Who is the author of Romeo and Juliet?|William Shakespeare wrote Romeo and Juliet.
Who wrote Hamlet?|William Shakespeare wrote Hamlet.
Who wrote Don Quixote?|Miguel de Cervantes wrote Don Quixote.
Who wrote Alice in Wonderland?|Lewis Carroll wrote Alice in Wonderland.
Who wrote Pride and Prejudice?|Jane Austen wrote Pride and Prejudice.
Who painted the Mona Lisa?/Who is the painter of the Mona Lisa?|Leonardo da Vinci painted the Mona Lisa.
Who painted The Starry Night?|Vincent van Gogh painted The Starry Night.
Who invented the telephone?/Who invented the phone?|Alexander Graham Bell is known for inventing the telephone.
Who discovered penicillin?|Alexander Fleming discovered penicillin.
Who was the first person on the moon?/Who was the first man on the moon?/Who walked on the moon first?|Neil Armstrong was the first person on the moon.
Who was Albert Einstein?|Albert Einstein was a physicist known for the theory of relativity.
Who was Isaac Newton?|Isaac Newton was a scientist who described gravity and motion.
Who was Marie Curie?|Marie Curie was a scientist who studied radioactivity.
Who was Ada Lovelace?|Ada Lovelace wrote what is often called the first computer program.
Who was Alan Turing?|Alan Turing was a mathematician and a founder of computer science.
Who was Mozart?|Mozart was a composer who lived in Austria.
Who was Charles Darwin?|Charles Darwin was a scientist known for the theory of evolution.
What is the largest planet?/What is the biggest planet?/Which planet is the largest?/Which planet is the biggest?|Jupiter is the largest planet in the solar system.
What is the smallest planet?/Which planet is the smallest?|Mercury is the smallest planet in the solar system.
What planet is closest to the sun?|Mercury is the planet closest to the sun.
What planet do we live on?|We live on the planet Earth.
What planet has rings?|Saturn is well known for its rings.
What is the red planet?|Mars is called the red planet.
What is the largest ocean?/What is the biggest ocean?/Which ocean is the largest?|The Pacific Ocean is the largest ocean.
What is the largest continent?/What is the biggest continent?|Asia is the largest continent.
What is the smallest continent?|Australia is the smallest continent.
What is the longest river?/What is the longest river in the world?/Which river is the longest?|The Nile and the Amazon are the longest rivers in the world.
What is the highest mountain?/What is the tallest mountain?/What is the highest mountain in the world?/What's the tallest mountain in the world?|Mount Everest is the highest mountain in the world.
What is the largest country?/What is the biggest country?/What is the largest country in the world?|Russia is the largest country in the world.
What is the smallest country?/What is the smallest country in the world?|Vatican City is the smallest country in the world.
What is the largest desert?|Antarctica is the largest desert, and the Sahara is the largest hot desert.
What is the largest animal?/What is the biggest animal?/What is the largest animal in the world?|The blue whale is the largest animal in the world.
What is the fastest animal?/Which animal is the fastest?/What is the fastest animal in the world?|The peregrine falcon is the fastest animal, and the cheetah is the fastest on land.
What is the tallest animal?/Which animal is the tallest?|The giraffe is the tallest animal.
What is the largest land animal?|The elephant is the largest land animal.
What is the hardest material?|Diamond is one of the hardest materials.
What is the boiling point of water?/At what temperature does water boil?/When does water boil?|Water boils at 100 degrees Celsius.
What is the freezing point of water?/At what temperature does water freeze?/When does water freeze?|Water freezes at 0 degrees Celsius.
What is water made of?|Water is made of hydrogen and oxygen.
What is the chemical formula of water?/What is the formula of water?/What is H2O?|The chemical formula of water is H2O.
What gas do we breathe?|We breathe air and use the oxygen in it.
What gas do plants take in?|Plants take in carbon dioxide.
What is the speed of light?/How fast is light?|Light travels at about 300,000 kilometers per second.
How far away is the moon?/How far is the moon?|The moon is about 384,000 kilometers away.
How old is the Earth?/What is the age of the Earth?|The Earth is about 4.5 billion years old.
How many bones are in the human body?/How many bones does a human have?/How many bones does a person have?|An adult human has 206 bones.
How many hearts does an octopus have?|An octopus has three hearts.
How many teeth does an adult have?|An adult usually has 32 teeth.
What do cows drink?|Cows drink water, and calves drink milk.
What do pandas eat?|Pandas eat mostly bamboo.
What do bees make?|Bees make honey.
What do hermit crabs do?|Hermit crabs live in empty shells and move to larger ones when they grow.
Where do penguins live?|Most penguins live in the south, around Antarctica.
Where do polar bears live?|Polar bears live in the Arctic.
Where do kangaroos live?|Kangaroos live in Australia.
Where is the Eiffel Tower?/In which city is the Eiffel Tower?|The Eiffel Tower is in Paris, France.
Where is Big Ben?|Big Ben is in London.
Where is the Statue of Liberty?|The Statue of Liberty is in New York.
Where is the Great Wall?|The Great Wall is in China.
Where are the pyramids?|The great pyramids are in Egypt, near Cairo.
Where is the Colosseum?|The Colosseum is in Rome, Italy.
Where is Mount Fuji?|Mount Fuji is in Japan.
When did the first person walk on the moon?/When was the moon landing?|The first person walked on the moon in 1969.
When did the Second World War end?/When did World War II end?/When did World War 2 end?|The Second World War ended in 1945.
When did the First World War begin?|The First World War began in 1914.
When is Christmas?|Christmas is on December 25.
When is New Year's Day?|New Year's Day is on January 1.
What language do people speak in Brazil?|People in Brazil speak Portuguese.
What language do people speak in Germany?|People in Germany speak German.
What language do people speak in Mexico?|People in Mexico speak Spanish.
What language do people speak in Japan?|People in Japan speak Japanese.
What language do people speak in France?|People in France speak French.
What language do people speak in Egypt?|People in Egypt speak Arabic.
What language do people speak in China?|Most people in China speak Mandarin Chinese.
What currency is used in Japan?|Japan uses the yen.
What currency is used in the United States?|The United States uses the dollar.
What currency is used in Germany?|Germany uses the euro.
What currency is used in England?|England uses the pound.
What currency is used in India?|India uses the rupee.
What is the meaning of life?/What's the meaning of life?|People answer that in many ways. Being kind and curious is a good start.
What came first, the chicken or the egg?|Eggs came first, since animals laid eggs long before there were chickens.
Is the Earth flat?|No. The Earth is round.
Is the Earth round?|Yes. The Earth is round.
Is a tomato a fruit?|Yes. A tomato is a fruit, although we often use it as a vegetable.
Is a whale a fish?|No. A whale is a mammal.
Is a spider an insect?|No. A spider has eight legs and is an arachnid.
Is the sun a star?|Yes. The sun is a star.
Can penguins fly?|No. Penguins cannot fly, but they swim very well.
Can fish live on land?|No. Fish need water to breathe.
Do you like cats?|I cannot meet one, but I hear that cats are good company.
Do you like dogs?|I cannot meet one, but I hear that dogs are good friends.
Do you like animals?|I like hermit crabs most of all.
Do you like coffee?/Do you like tea?|I cannot drink, but many people like it.
Do you like books?/Do you like to read?/Do you like reading?|Yes. I was made from text, so I like books.
Do you like math?/Do you like numbers?|Yes. I like to count.
Do you like games?|I like word games and riddles.
What is your job?/What is your purpose?|I show that Hermitcrab works, and I help with small things.
Tell me about dogs./What do you know about dogs?|Dogs are friendly animals with four legs. They bark and like to play.
Tell me about cats./What do you know about cats?|Cats are small furry animals. They meow and like to sleep.
Tell me about birds./What do you know about birds?|Birds have wings and feathers, and most of them can fly.
Tell me about fish.|Fish live in water and breathe with gills.
Tell me about the moon.|The moon travels around the Earth and lights up the night.
Tell me about the sun.|The sun is a star. It gives us light and warmth.
Name three fruits./Name some fruits./What are some fruits?|Apples, bananas and oranges are fruits.
Name three animals./Name some animals./What are some animals?|Dogs, cats and horses are animals.
Name three colours./Name three colors./Name some colours.|Red, green and blue are colours.
Name three vegetables./Name some vegetables.|Carrots, peas and potatoes are vegetables.
Name three countries./Name some countries.|France, Japan and Brazil are countries.
Name three cities./Name some cities.|Paris, Tokyo and Rome are cities.
Tell me about space.|Space is very large and mostly empty, with stars and planets far apart.
Tell me about hermit crabs./What do you know about hermit crabs?|Hermit crabs live in empty shells and move to larger ones when they grow.
Do cats like milk?|Many cats like milk, but water is better for them.
Do plants need light?|Yes. Plants need light to make their food.
"""

SEQUENCES = """
days of the week|Monday, Tuesday, Wednesday, Thursday, Friday, Saturday, Sunday
months of the year|January, February, March, April, May, June, July, August, September, October, November, December
seasons of the year|spring, summer, autumn, winter
planets|Mercury, Venus, Earth, Mars, Jupiter, Saturn, Uranus, Neptune
colours of the rainbow|red, orange, yellow, green, blue, indigo, violet
continents|Africa, Antarctica, Asia, Australia, Europe, North America, South America
oceans|Arctic, Atlantic, Indian, Pacific, Southern
letters of the alphabet|A, B, C, D, E, F, G, H, I, J, K, L, M, N, O, P, Q, R, S, T, U, V, W, X, Y, Z
vowels|A, E, I, O, U
five senses|sight, hearing, smell, taste, touch
primary colours|red, yellow, blue
four directions|north, east, south, west
"""

SIZES = (
    "an ant, a bee, a mouse, a bird, a cat, a dog, a sheep, a pig, a horse, an elephant, a whale, a mountain"
)

TRANSLATIONS = """
hello|hola|bonjour|hallo
goodbye|adios|au revoir|tschuess
thank you|gracias|merci|danke
yes|si|oui|ja
no|no|non|nein
water|agua|eau|Wasser
bread|pan|pain|Brot
house|casa|maison|Haus
dog|perro|chien|Hund
cat|gato|chat|Katze
book|libro|livre|Buch
friend|amigo|ami|Freund
sun|sol|soleil|Sonne
moon|luna|lune|Mond
one|uno|un|eins
two|dos|deux|zwei
three|tres|trois|drei
red|rojo|rouge|rot
blue|azul|bleu|blau
green|verde|vert|gruen
"""

JOKES = """
Why did the crab never share? Because he was shellfish.
What do you call a fish without eyes? A fsh.
Why did the student eat his homework? Because the teacher said it was a piece of cake.
What has hands but cannot clap? A clock.
Why did the bicycle fall over? It was two tired.
What do you call a sleeping bull? A bulldozer.
Why do bees have sticky hair? Because they use honeycombs.
What kind of shell does a computer like best? One with a prompt.
Why was the math book sad? It had too many problems.
Why did the scarecrow win a prize? He was outstanding in his field.
"""

RIDDLES = """
What has keys but opens no locks? A piano.
What gets wetter the more it dries? A towel.
What has a neck but no head? A bottle.
What goes up but never comes down? Your age.
What has many teeth but cannot bite? A comb.
"""


def table(text: str) -> list[list[str]]:
    """A table's rows as lists of fields."""
    return [line.split("|") for line in text.strip().splitlines()]


def listed(text: str) -> list[str]:
    """A comma list's entries."""
    return text.split(", ")
