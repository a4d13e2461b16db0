"""Word lists shared by the generators."""

NOUNS = (
    "account angle apple area array average balance bird block board book border bottle box branch bridge bucket buffer "
    "button cache camera candle car card cat cell chain chair channel city clock cloud code color column config cookie "
    "copy corner cost count crab cup data date day deck delta depth desk dog door edge engine entry error event factor "
    "field file filter fish flag flower folder font forest fork frame friend fruit game garden gate glass graph grid group "
    "guest hand hash head height hill horse hotel hour house image index island item job key kitchen label lake lamp layer "
    "leaf length letter level limit line link list lock lunch map mark mask match matrix meal member memory message meter "
    "minute mirror model moon mountain mouse music name net node note number object ocean offset option order owner packet "
    "page pair paper parent park part path pencil phone photo picture pixel plan planet plant plate player point pool port "
    "price prime queue radius range rank rate record region result river road robot rocket room root row rule sample scale "
    "school score sea season section seed segment sensor session shape shell ship shop signal size slot snow song space "
    "speed spoon spring stack star start state station step stone storm story stream street sum summer table tag task team "
    "text ticket time token tool tower town train tree unit user value vector village voice volume wall watch water wave "
    "week weight wheel width wind window winter word world year zone"
).split()
VERBS = (
    "add apply build call check clean clear close collect compute convert copy count create decode delete draw encode "
    "fetch fill filter find fix format get handle hide join load lock make map mark match merge move open pack paint parse "
    "pick print process pull push read remove render reset resize run save scan search select send set show shuffle sort "
    "split start stop store swap test track trim turn update validate visit wait wrap write"
).split()
ADJECTIVES = (
    "active big blue bright broken clean clear cold dark deep empty fast final first flat full global good green heavy "
    "hidden high hot inner large last late light local long lost lower main max min narrow new next old open outer past "
    "quick quiet random rapid raw red round safe sharp short silent simple slow small soft strong tall tiny total upper "
    "valid warm wide wild young"
).split()
NAMES = (
    "Ada Alan Alice Amir Anna Ben Bob Carl Clara Dana David Ella Emma Eric Eva Finn Grace Hana Henry Ines Ivan Jack Jane "
    "Jonas Julia Kai Karen Kim Lars Laura Leo Lena Lily Liam Lucy Luis Maria Mark Maya Mia Mira Nina Noah Nora Olga Omar "
    "Oscar Paul Peter Priya Rosa Ruth Sam Sara Sofia Theo Tim Tom Vera Victor Yuki Zoe"
).split()
CITIES = (
    "Amsterdam Athens Berlin Boston Cairo Chicago Copenhagen Delhi Dublin Geneva Helsinki Istanbul Lagos Lima Lisbon "
    "London Madrid Miami Montreal Moscow Mumbai Nairobi Naples Oslo Paris Porto Prague Rome Santiago Seoul Singapore "
    "Stockholm Sydney Tokyo Toronto Vienna Warsaw Zurich"
).split()
