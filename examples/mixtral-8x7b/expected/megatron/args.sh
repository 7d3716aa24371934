# shellcheck shell=bash disable=SC2034
# Arguments for Megatron-LM 0.19. Source this file and pass "${MEGATRON_ARGS[@]}".
MEGATRON_ARGS=(
  # model
  --num-layers 32
  --hidden-size 4096
  --ffn-hidden-size 14336
  --num-attention-heads 32
  --group-query-attention
  --num-query-groups 8
  --kv-channels 128
  --disable-bias-linear
  --swiglu
  --normalization RMSNorm
  --norm-epsilon 1e-05
  --untie-embeddings-and-output-weights
  --position-embedding-type rope
  --rotary-base 1000000
  --rotary-percent 1.0
  --max-position-embeddings 32768
  --attention-dropout 0.0
  --hidden-dropout 0.0
  --vocab-size 32000
  --make-vocab-size-divisible-by 128
  # experts
  --num-experts 8
  --moe-ffn-hidden-size 14336
  --moe-router-topk 2
  --moe-router-score-function softmax
  --moe-router-load-balancing-type aux_loss
  --moe-aux-loss-coeff 0.02
  --moe-router-dtype fp32
  --moe-router-fusion
  --moe-router-force-load-balancing
  --moe-grouped-gemm
  --moe-permute-fusion
  --moe-token-dispatcher-type alltoall
  # parallelism
  --tensor-model-parallel-size 1
  --pipeline-model-parallel-size 4
  --context-parallel-size 1
  --expert-model-parallel-size 8
  --expert-tensor-parallel-size 1
  --use-distributed-optimizer
  --overlap-grad-reduce
  --overlap-param-gather
  --distributed-timeout-minutes 30
  # pipeline
  --num-virtual-stages-per-pipeline-rank 4
  # batch
  --seq-length 4096
  --micro-batch-size 1
  --global-batch-size 1024
  --train-iters 2000
  --eval-iters 0
  --lr 2e-05
  --min-lr 2e-06
  --lr-decay-style cosine
  --lr-warmup-fraction 0.01
  --weight-decay 0.1
  --adam-beta1 0.9
  --adam-beta2 0.95
  --clip-grad 1.0
  # precision
  --bf16
  --transformer-impl transformer_engine
  --attention-backend auto
  # data
  --mock-data
  --tokenizer-type NullTokenizer
  --no-create-attention-mask-in-dataloader
  # checkpoint
  --save /lustre/checkpoints/mixtral-8x7b-tuned
  --save-interval 1860
  --load /lustre/checkpoints/mixtral-8x7b-tuned
  --pretrained-checkpoint /lustre/checkpoints/mixtral-8x7b-base
  --exit-signal-handler
  --ckpt-format torch_dist
  # log
  --log-interval 1
  --log-throughput
  --manual-gc
  --manual-gc-interval 100
)
