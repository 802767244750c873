"""The methods of the uses that come with the package."""

from bertsmith.tasks.answering.task import AnswerMethods
from bertsmith.tasks.choice.task import ChooseMethods
from bertsmith.tasks.classifying import ClassifyMethods
from bertsmith.tasks.embedding import EmbedMethods
from bertsmith.tasks.filling import FillMaskMethods
from bertsmith.tasks.following import FollowsMethods
from bertsmith.tasks.reranking.task import RankMethods
from bertsmith.tasks.spans.task import SpansMethods
from bertsmith.tasks.tagging.task import TagMethods
from bertsmith.tasks.zero_shot.task import LabelMethods

class Methods(
    FillMaskMethods,
    ClassifyMethods,
    TagMethods,
    AnswerMethods,
    ChooseMethods,
    FollowsMethods,
    EmbedMethods,
    RankMethods,
    SpansMethods,
    LabelMethods,
): ...
